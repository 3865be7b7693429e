"""Sends a job's datagrams once more to whoever must not take them, and has the ranks check sums.

    PYTHONPATH=tests:tests/attacks python tests/attacks/replays.py --strikes 100000 --racks

Whoever owns the path stands between ranks and aggregators (middle.py). What passes goes, before it
is where it belongs, to other aggregators, to the other level of racks, back, and into other jobs,
each time from the right address and under the right job and epoch.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from middle import Middle
from support import run_ranks, serving

import sparsewire
from sparsewire.meeting.aggregators.aggregator import AggregatorServer

RANKS = 4
ELEMENTS = 60_000
PER_DATAGRAM = 2
ENOUGH = "ENOUGH"
AGGREGATORS = "AGGREGATORS_BY_RANK"

Site = tuple[str, list[AggregatorServer]]
"""What ranks are told of the aggregators, and these."""


@dataclass(frozen=True)
class Outcome:
    """What was sent, and what the aggregators counted of the job that was attacked."""

    strikes: dict[str, int]
    steps: int
    counters: list[dict[str, int]]
    rejected_by_ranks: int

    def __str__(self) -> str:
        return (
            f"{sum(self.strikes.values())} strikes {self.strikes}, {self.steps} steps, all sums "
            f"right; ranks rejected {self.rejected_by_ranks}, aggregators counted {self.counters}"
        )


def take_steps(least: int) -> tuple[int, int]:
    """One rank: sums until rank 0 sees that it is enough; steps, and datagrams rejected."""
    rank = int(os.environ["RANK"])
    addresses = os.environ[AGGREGATORS].split(";")
    os.environ["SPARSEWIRE_AGGREGATORS"] = addresses[rank % len(addresses)]
    if len(addresses) > 1:
        os.environ["SPARSEWIRE_RACK"] = f"rack{rank % len(addresses)}"
    steps = 0
    with sparsewire.init(timeout=60) as comm:
        last = 0.0
        while last == 0.0:
            values = (np.arange(ELEMENTS) * 7 + 13 * steps) % 1021
            x = ((comm.rank + 1) * values).astype(np.float32)
            is_enough = steps >= least and Path(os.environ[ENOUGH]).exists()
            x[0] = comm.rank == 0 and is_enough
            comm.all_reduce(x)
            last, x[0] = float(x[0]), 0.0
            sums = sum(range(1, comm.world_size + 1)) * values
            sums[0] = 0
            assert np.array_equal(x, sums.astype(np.float32)), f"a wrong sum in step {steps}"
            steps += 1
        return steps, comm.stats()["datagrams_rejected"]


@contextmanager
def flat(middle: Middle) -> Iterator[Site]:
    """Two aggregators, each for half of the blocks."""
    with serving(transport="udp") as one, serving(transport="udp") as other:
        servers = [one, other]
        yield ",".join(str(middle.open(server.address)) for server in servers), servers


@contextmanager
def racks(middle: Middle) -> Iterator[Site]:
    """A root, and two racks' aggregators, every other rank in each."""
    with ExitStack() as stack:
        root = stack.enter_context(serving(transport="udp"))
        above = middle.open(root.address, level=1)
        leaves = [stack.enter_context(serving(transport="udp", parent=above)) for _ in range(2)]
        yield ";".join(str(middle.open(leaf.address)) for leaf in leaves), [root, *leaves]


def besiege(
    site: Callable[[Middle], AbstractContextManager[Site]],
    strikes: int,
    deadline: float = 60.0,
) -> Outcome:
    """Attack a job, whose predecessor has been listened to. Raises where a sum is wrong."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Middle()) as middle,
        site(middle) as (addresses, servers),
    ):
        enough = Path(folder, "enough")
        environment = {
            "SPARSEWIRE_TRANSPORT": "udp",
            "SPARSEWIRE_ARITHMETIC": "fixed",
            AGGREGATORS: addresses,
            ENOUGH: str(enough),
        }
        enough.touch()
        run_ranks(RANKS, take_steps, 2, environment=environment, deadline_s=deadline)
        middle.remember()
        enough.unlink()
        with _watching(middle, servers, strikes, enough, deadline) as counters:
            told = run_ranks(RANKS, take_steps, 2, environment=environment, deadline_s=deadline)
    return Outcome(dict(middle.strikes), told[0][0], counters, sum(each for _, each in told))


@contextmanager
def _watching(
    middle: Middle, servers: list[AggregatorServer], strikes: int, enough: Path, patience: float
) -> Iterator[list[dict[str, int]]]:
    """Have the job attacked, and ended after so many strikes; what the aggregators counted last."""
    counters: list[dict[str, int]] = [{} for _ in servers]
    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + patience
        while not over.wait(0.02):
            for number, server in enumerate(servers):
                for counted in server._plane.slots().values():
                    counters[number] = counted
            if sum(middle.strikes.values()) >= strikes or time.monotonic() > deadline:
                enough.touch()

    middle.per_datagram = PER_DATAGRAM
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield counters
    finally:
        over.set()
        thread.join()
        middle.per_datagram = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=100_000)
    parser.add_argument("--racks", action="store_true", help="a root and two racks below it")
    parser.add_argument("--seconds", type=float, default=300.0, help="at most")
    arguments = parser.parse_args()
    print(besiege(racks if arguments.racks else flat, arguments.strikes, arguments.seconds))


if __name__ == "__main__":
    main()
