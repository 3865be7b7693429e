"""What several tests need: a function run as every rank of a job, and aggregators beside it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from meeting import MEETING_PLACE

from sparsewire.errors import Error
from sparsewire.meeting.aggregators.aggregator import AggregatorServer
from sparsewire.options import Address

LOOPBACK = Address("127.0.0.1", 0)
SETTLES_S = 20

_context = multiprocessing.get_context("forkserver")
# Ranks start much faster when they need not import these again.
_context.set_forkserver_preload(["numpy", "sparsewire"])


class RanksFailed(AssertionError):
    """Some rank raised, died, or did not end in time."""


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *args: Any,
    deadline_s: float = 40.0,
    environment: dict[str, str] | None = None,
    dying: Iterable[int] = (),
) -> list[Any]:
    """Run `function(*args)` in one process per rank, and return what each returned.

    The ranks meet in a fresh directory, and so do those who await each other (meeting.py). Those
    in `dying` are expected to be killed, and have the result None. Any other that raises, dies or
    is late makes this raise RanksFailed with all tracebacks. No process outlives the call.
    """
    with tempfile.TemporaryDirectory(prefix="sparsewire-test-") as directory:
        place = Path(directory, "meeting")
        place.mkdir()
        settings = {
            "SPARSEWIRE_RENDEZVOUS": f"file://{directory}/rendezvous",
            MEETING_PLACE: str(place),
            **(environment or {}),
        }
        job = _Job(world_size, function, args, settings)
        try:
            return job.results(time.monotonic() + deadline_s, set(dying))
        finally:
            job.kill()


class _Job:
    def __init__(
        self, world_size: int, function: Callable[..., Any], args: Any, settings: dict[str, str]
    ) -> None:
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world_size):
            ours, theirs = _context.Pipe(duplex=False)
            ranked = {**settings, "RANK": str(rank), "WORLD_SIZE": str(world_size)}
            process = _context.Process(target=_be_rank, args=(theirs, ranked, function, args))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def results(self, deadline: float, dying: set[int]) -> list[Any]:
        outcomes = self._collect(deadline)
        problems = []
        for rank in range(len(self._processes)):
            kind, value = outcomes.get(rank, ("late", "did not end in time"))
            if kind != "returned" and not (kind == "died" and rank in dying):
                problems.append(f"rank {rank} {kind}: {value}")
        if problems:
            raise RanksFailed("\n".join(problems))
        return [outcomes[rank][1] for rank in range(len(self._processes))]

    def _collect(self, deadline: float) -> dict[int, tuple[str, Any]]:
        outcomes: dict[int, tuple[str, Any]] = {}
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        while waiting and (remaining := deadline - time.monotonic()) > 0:
            for pipe in wait(list(waiting), remaining):
                try:
                    outcome = pipe.recv()
                except EOFError:
                    outcome = ("died", None)
                outcomes[waiting.pop(pipe)] = outcome
        return outcomes

    def kill(self) -> None:
        for process in self._processes:
            # What has returned its result may still close its communicator.
            process.join(5.0)
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


def until(tells: Callable[[], Any]) -> Any:
    """What it tells once that is true."""
    deadline = time.monotonic() + SETTLES_S
    while not (told := tells()):
        assert time.monotonic() < deadline, f"this never came true: {tells}"
        time.sleep(0.02)
    return told


def _be_rank(
    pipe: Connection, settings: dict[str, str], function: Callable[..., Any], args: Any
) -> None:
    for name in list(os.environ):
        if name.startswith(("SPARSEWIRE_", "GLOO_", "MASTER_", "TORCHELASTIC_")):
            del os.environ[name]
    os.environ.update(settings)
    try:
        pipe.send(("returned", function(*args)))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


def no_xdp() -> str | None:
    """Why the kernel cannot add up here, where the lab works; None where it can."""
    try:
        from sparsewire.xdp.libbpf import library
        from sparsewire.xdp.loader import object_path

        library()
        object_path()
    except Error as error:
        return str(error)
    return None


LOSSY = "loss=0.02,duplicate=0.02,reorder=0.02,corrupt=0.01,seed=11"


@contextmanager
def serving(**settings: bytes | float | str) -> Iterator[AggregatorServer]:
    """An aggregator in a thread of this process."""
    stop = threading.Event()
    with closing(AggregatorServer(LOOPBACK, **settings)) as server:
        thread = threading.Thread(target=server.serve, args=(stop.is_set,))
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            thread.join()


@contextmanager
def environment_of(transport: str) -> Iterator[dict[str, str]]:
    """The variables with which ranks take "colocated", "colocated-3-lanes" or "dedicated".

    Colocated ranks share memory, and talk over TCP where they have 3 lanes. With "datagrams", sums
    go to aggregators by them, and some are lost on a path that is "lossy".
    """
    if transport == "dedicated":
        with serving() as one, serving() as other:
            yield {"SPARSEWIRE_AGGREGATORS": f"{one.address},{other.address}"}
    elif transport.startswith("datagrams"):
        disturb = LOSSY if transport.endswith("lossy") else ""
        settings = {"transport": "udp", "disturb": disturb}
        with serving(**settings) as one, serving(**settings) as other:
            yield {
                "SPARSEWIRE_AGGREGATORS": f"{one.address},{other.address}",
                "SPARSEWIRE_TRANSPORT": "udp",
                "SPARSEWIRE_DISTURB": disturb,
            }
    else:
        is_tcp = transport == "colocated-3-lanes"
        yield {
            "SPARSEWIRE_LANES": "3" if is_tcp else "1",
            "SPARSEWIRE_SHARED_MEMORY": "0" if is_tcp else "1",
        }
