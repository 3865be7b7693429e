"""Replicas of `outer_replica.py` as processes that tests kill, stop and continue."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import outer_replica
from ranks import PATIENCE, _processes

from sparsewire.torch.outer import serve_meeting

WAIT_S = 40.0 * PATIENCE
FOREVER = 1_000_000


class Replica:
    """One process; `told` are its lines so far."""

    def __init__(self, address: str, name: str, arguments: list[str], env: dict[str, str]) -> None:
        self.name = name
        self.told: list[dict[str, Any]] = []
        ours, theirs = _processes.Pipe(duplex=False)
        given = (theirs, [address, name, *arguments], env)
        self.process = _processes.Process(target=_live, args=given, daemon=True)
        self.process.start()
        theirs.close()
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, pipe: Any) -> None:
        with os.fdopen(os.dup(pipe.fileno())) as lines:
            for line in lines:
                self.told.append(json.loads(line))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in list(self.told) if line["kind"] == kind]

    @property
    def digests(self) -> dict[int, str]:
        """By round, the digest of the shared state after it."""
        return {line["round"]: line["digest"] for line in self.lines("commit")}

    @property
    def round(self) -> int:
        """The last round that it committed."""
        return max(self.digests, default=0)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Wait until it has ended, and all it told is here."""
        self.process.join(WAIT_S)
        assert self.process.exitcode is not None, f"{self.name} did not end: {self.told[-3:]}"
        self._reader.join(WAIT_S)


class Job:
    """The replicas of a job, and the place where they meet."""

    def __init__(self) -> None:
        ours, theirs = _processes.Pipe(duplex=False)
        self.meeting = _processes.Process(target=_serve, args=(theirs,), daemon=True)
        self.meeting.start()
        self.address = f"127.0.0.1:{ours.recv()}"
        self.replicas: list[Replica] = []

    def start(self, name: str, *arguments: object, **env: str) -> Replica:
        replica = Replica(self.address, name, [str(each) for each in arguments], env)
        self.replicas.append(replica)
        return replica

    def close(self) -> None:
        for process in [self.meeting, *(each.process for each in self.replicas)]:
            process.kill()
            process.join()


def until(condition: Callable[[], bool], replicas: list[Replica]) -> None:
    """Wait until a condition holds; what the replicas told last is shown if it never does."""
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends, {each.name: each.told[-3:] for each in replicas}
        time.sleep(0.01)


def await_round(number: int, replicas: list[Replica]) -> None:
    """Wait until all of these have committed this round."""
    until(lambda: min(each.round for each in replicas) >= number, replicas)


def _live(pipe: Any, arguments: list[str], env: dict[str, str]) -> None:
    os.environ.update(env)
    os.dup2(pipe.fileno(), 1)
    sys.stdout = os.fdopen(1, "w")
    sys.argv = ["outer_replica.py", *arguments]
    outer_replica.main()


def _serve(pipe: Any) -> None:
    store = serve_meeting("127.0.0.1", 0)
    pipe.send(store.port)
    threading.Event().wait()
