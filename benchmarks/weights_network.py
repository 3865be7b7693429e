"""Weights published over emulated networks: four hosts at 1 Gbit/s, and a tree of 32 readers.

    python benchmarks/weights_network.py hosts --record
    python benchmarks/weights_network.py whole --record
    python benchmarks/weights_network.py gloo --record
    python benchmarks/weights_network.py tree --record
    python benchmarks/weights_network.py crowd --record

In the lab, as root. All hosts share the processors of this machine, which a cluster's would not.
Times are of the quickest of several versions, from the call of `publish` on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import records

from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.site import Loopback, Site

PORT = 7400
MEMBER = Path(__file__).with_name("weights_member.py")
Told = dict[str, Any]


class Member:
    """A process on a host, which tells of what it does in lines of JSON."""

    def __init__(self, site: Site, place: int, role: str, nbytes: int, *more: str) -> None:
        address = f"{site.addresses[0]}:{PORT}"
        argv = [sys.executable, str(MEMBER), role, address, str(nbytes), *more]
        environment = {**os.environ, **site.environment(place), "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self._process = site.popen(place, argv, environment, stdin=pipe, stdout=pipe, text=True)

    def told(self) -> Told:
        """What it says next; raises SystemExit if it has ended."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a member ended early: see what it said above")
        found: Told = json.loads(line)
        return found

    def say(self, **what: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def started(
    site: Site, readers: int, nbytes: int, readers_nbytes: int
) -> tuple[Member, list[Member]]:
    """A publisher on the first host, and readers on as many others, once all are there."""
    publisher = Member(site, 0, "publisher", nbytes)
    others = [
        Member(site, place, "reader", readers_nbytes, str(place)) for place in range(1, readers + 1)
    ]
    for member in (publisher, *others):
        member.told()
    return publisher, others


def version(publisher: Member, readers: Sequence[Member], **what: Any) -> records.Row:
    """One version: seconds from the call of `publish` on, until the last reader has it."""
    publisher.say(readers=len(readers), **what)
    made = publisher.told()
    came = [reader.told() for reader in readers]
    begin = made["begin"]
    last = {name: max(each[name] for each in came) for name in ("staged", "verified", "applied")}
    return {
        "applied_s": last["applied"] - begin,
        "publish_s": made["published"] - begin,
        "wire_s": last["staged"] - made["published"],
        "verify_s": max(each["verified"] - each["staged"] for each in came),
        "apply_s": max(each["applied"] - each["verified"] for each in came),
        "staged_s": last["staged"] - begin,
        "cpu_s": sum(each["cpu_s"] for each in (made, *came)),
        "publish_memory_bytes": made["memory_bytes"],
        "read_memory_bytes": max(each["memory_bytes"] for each in came),
        "message_bytes": made["nbytes"],
        "changed": made["changed"],
        "from_relays_share": sum(each["nbytes_from_relays"] for each in came)
        / max(1, sum(each["nbytes"] for each in came)),
    }


def quickest(rounds: Sequence[records.Row]) -> records.Row:
    for each in rounds:
        print("  ", *(f"{name[:-2]} {each[name]:.2f}" for name in each if name.endswith("_s")))
    return min(rounds, key=lambda each: float(each["applied_s"]))


def hosts(given: argparse.Namespace) -> dict[str, records.Row]:
    """Readers that have the model get a version of which few elements have changed."""
    with Lab(given.readers + 1, given.link) as lab:
        publisher, readers = started(lab, given.readers, given.nbytes, given.nbytes)
        version(publisher, readers)
        found = [version(publisher, readers, share=given.share) for _ in range(given.rounds)]
    return {f"hosts/{given.share:g}": quickest(found)}


def whole(given: argparse.Namespace) -> dict[str, records.Row]:
    """Readers that have nothing get the model whole."""
    with Lab(given.readers + 1, given.link) as lab:
        publisher, readers = started(lab, given.readers, given.nbytes, 0)
        return {"whole": version(publisher, readers)}


def gloo(given: argparse.Namespace) -> dict[str, records.Row]:
    """The same model by torch.distributed's broadcast over gloo, tensor by tensor."""
    with Lab(given.readers + 1, given.link) as lab:
        ranks = [
            Member(lab, place, "gloo", given.nbytes, str(place))
            for place in range(given.readers + 1)
        ]
        for rank in ranks:
            rank.told()
            rank.say()
        came = [rank.told() for rank in ranks]
    seconds = max(each["applied"] for each in came) - min(each["begin"] for each in came)
    return {"gloo": {"applied_s": seconds, "model_bytes": came[0]["model_bytes"]}}


def tree(given: argparse.Namespace) -> dict[str, records.Row]:
    """A message of some size to one reader, and to many that pass it on."""
    rows = {}
    with Lab(given.readers + 1, given.link) as lab:
        publisher, readers = started(lab, given.readers, 0, 0)
        for count in sorted({1, *given.counts, given.readers}, reverse=True):
            for reader in readers[count:]:
                reader.end()
            del readers[count:]
            found = [version(publisher, readers, noise=given.nbytes) for _ in range(given.rounds)]
            rows[f"tree/{given.link}/{count}"] = quickest(found)
    alone = rows[f"tree/{given.link}/1"]["applied_s"]
    return {name: {**row, "over_one": row["applied_s"] / alone} for name, row in rows.items()}


def crowd(given: argparse.Namespace) -> dict[str, records.Row]:
    """A publisher that tells many readers where to get a small message, over loopback."""
    site = Loopback(2)
    publisher = Member(site, 0, "publisher", 0)
    publisher.told()
    many = Member(site, 1, "crowd", given.readers)
    many.told()
    rows = []
    for _ in range(given.rounds + 1):
        publisher.say(readers=given.readers, noise=given.nbytes)
        told, made = many.told(), publisher.told()
        rows.append({"told_s": told["told"] - made["begin"], "trees": told["trees"]})
    for member in (publisher, many):
        member.end()
    return {f"crowd/{given.readers}": min(rows[1:], key=lambda row: row["told_s"])}


CASES = {"hosts": hosts, "whole": whole, "gloo": gloo, "tree": tree, "crowd": crowd}
LINKS = {"hosts": "1gbit", "whole": "1gbit", "gloo": "1gbit", "tree": "100mbit", "crowd": None}
READERS = {"hosts": 3, "whole": 3, "gloo": 3, "tree": 32, "crowd": 1000}
NBYTES = {
    "hosts": 2 * 10**9,
    "whole": 2 * 10**9,
    "gloo": 2 * 10**9,
    "tree": 4 << 20,
    "crowd": 256 << 10,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--readers", type=int)
    parser.add_argument("--counts", type=int, nargs="*", default=[8], help="more trees, smaller")
    parser.add_argument("--link", help="speed of each host's link")
    parser.add_argument("--nbytes", type=int, help="of the model, or of the tree's message")
    parser.add_argument("--share", type=float, default=0.01, help="of the elements that change")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep it in the record")
    given = parser.parse_args()
    for name, defaults in (("readers", READERS), ("link", LINKS), ("nbytes", NBYTES)):
        if getattr(given, name) is None:
            setattr(given, name, defaults[given.case])
    for row, figures in CASES[given.case](given).items():
        print(row, *(f"{name} {value:.5g}" for name, value in figures.items()), sep="\n  ")
        if given.record:
            records.keep("weights_network", row, figures)


if __name__ == "__main__":
    main()
