"""Kills one of four replicas of an outer optimizer in each phase of a round, time and again, and
starts a newcomer in its place. Tells when the others commit their next round, and whether bits
agree."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import records

from sparsewire.torch import outer

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "torch" / "outer_replica.py"
PHASES = ("WAITING", "ARRIVING", "ADDING", "VOTING", "COMMITTING")
LIMIT_S = 120
COMPRESSOR = "centroids:64+span-top-k:64:4096"


class Replica:
    """A process, and the lines that it has told."""

    def __init__(self, address: str, name: str, options: list[str]) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        command = [sys.executable, str(PROGRAM), address, name, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))

    def first(self, kind: str) -> dict[str, Any] | None:
        return next((line for line in self.told if line["kind"] == kind), None)

    def commits(self) -> list[dict[str, Any]]:
        return [line for line in self.told if line["kind"] == "commit"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


def awaited(what: str, condition: Any) -> None:
    """Wait until it holds; raises TimeoutError."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {LIMIT_S} s there is no sign of {what}")
        time.sleep(0.005)


def one_kill(address: str, number: int, phase: str, common: list[str]) -> dict[str, float]:
    """Kill one of four replicas in a phase, and let a newcomer in."""
    names = [f"{number}-{i}" for i in range(4)]
    dying = number % 4
    replicas = [
        Replica(address, name, common + (["--die-in", phase] if i == dying else []))
        for i, name in enumerate(names)
    ]
    try:
        victim = replicas[dying]
        rest = [each for each in replicas if each is not victim]
        awaited("the death", lambda: victim.first("dies"))
        death = victim.first("dies")
        assert death is not None

        def after(each: Replica) -> list[dict[str, Any]]:
            return [
                c for c in each.commits() if c["at"] > death["at"] and c["round"] > death["round"]
            ]

        awaited("a commit after the death", lambda: all(after(each) for each in rest))
        seconds = max(after(each)[0]["at"] for each in rest) - death["at"]
        newcomer = Replica(address, f"{number}-new", common)
        replicas.append(newcomer)
        awaited("the newcomer's commits", lambda: len(newcomer.commits()) >= 3)
        joined = newcomer.first("joined")
        assert joined is not None
        check_bits(replicas)
        return {"commit_s": seconds, "join_s": joined["seconds"]}
    finally:
        for each in replicas:
            each.close()


def check_bits(replicas: list[Replica]) -> None:
    """All that committed a round have the same bits after it; raises AssertionError."""
    digests: dict[int, set[str]] = defaultdict(set)
    for each in replicas:
        for commit in each.commits():
            digests[commit["round"]].add(commit["digest"])
    differing = [number for number, found in digests.items() if len(found) > 1]
    assert not differing, f"replicas differ after rounds {differing}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--deadline", default="2", help="seconds that a round waits for the late")
    parser.add_argument("--record", action="store_true", help="write the record outer_kills")
    given = parser.parse_args()
    common = ["--rounds", "100000", "--every", "2", "--step-s", "0.02", "--width", "2000"]
    common += ["--deadline", given.deadline, "--compressor", COMPRESSOR]
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(given.kills):
        phase = PHASES[number % len(PHASES)]
        # A meeting for each, as for a job of its own.
        server = outer.serve_meeting("127.0.0.1", 0)
        result = one_kill(f"127.0.0.1:{server.port}", number, phase, common)
        found[phase].append(result)
        print(
            f"{number + 1:3} {phase:10}", *(f"{k} {v:.3f}" for k, v in result.items()), flush=True
        )
    found["all"] = [each for results in found.values() for each in results]
    for phase, results in found.items():
        row = row_of(results)
        print(phase, json.dumps(row))
        if given.record:
            records.keep("outer_kills", phase.lower(), row)


def row_of(results: list[dict[str, float]]) -> records.Row:
    commits = [each["commit_s"] for each in results]
    return {
        "kills": len(results),
        "longest_commit_s": max(commits),
        "median_commit_s": statistics.median(commits),
        "longest_join_s": max(each["join_s"] for each in results),
    }


if __name__ == "__main__":
    main()
