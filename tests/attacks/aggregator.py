"""Attacks a dedicated aggregator while a job runs there, and measures what the job notices.

    PYTHONPATH=tests python tests/attacks/aggregator.py --seconds 60

Quiet windows and windows of attack take turns, so that what else the machine does hits both. The
attackers make a bounded number of strikes per second, as they share the processors with the job.
"""

from __future__ import annotations

import argparse
import math
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from strangers import STRIKES, attempt
from support import run_ranks

import sparsewire
from sparsewire.options import Address, parse_address

WINDOW_S = 5.0
STRIKES_PER_S = 20.0
HELD_MAX = 100
ELEMENTS = 1_000_000


@dataclass(frozen=True)
class Outcome:
    """Times in ms, memory in MiB."""

    quiet_ms: float
    attacked_ms: float
    steps: int
    strikes: int
    growth: float

    def __str__(self) -> str:
        change = 100 * (self.attacked_ms / self.quiet_ms - 1)
        return (
            f"{self.steps} steps, {self.strikes} strikes; step {self.quiet_ms:.2f} ms quiet, "
            f"{self.attacked_ms:.2f} ms under attack ({change:+.1f}%); "
            f"the aggregator grew by {self.growth:.1f} MiB"
        )


def take_steps(until: float) -> list[tuple[float, float]]:
    """One rank of the job: (when, seconds) of each step; rank 0's clock ends it."""
    steps = []
    with sparsewire.init() as comm:
        x = np.zeros(ELEMENTS, np.float32)
        while x[0] == 0:
            x[:] = 0
            x[1000 * comm.rank + 1 :: 25_600] = 1
            x[0] = comm.rank == 0 and time.monotonic() > until
            started = time.monotonic()
            comm.all_reduce(x)
            steps.append((started, time.monotonic() - started))
    return steps


def resident(process_id: int) -> float:
    """MiB."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextmanager
def aggregator() -> Iterator[tuple[int, Address]]:
    """`sparsewire aggregator` with its defaults: its process id and address."""
    program = [
        sys.executable,
        "-m",
        "sparsewire",
        "aggregator",
    ]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            yield process.pid, parse_address(process.stdout.readline().split()[-1])
            assert process.poll() is None, "the aggregator has ended"
        finally:
            process.kill()


class Attack:
    """Windows of strikes, between windows of quiet."""

    def __init__(self, process_id: int, address: Address, window: float) -> None:
        self._process_id = process_id
        self._address = address
        self._window = window
        self._held: deque[socket.socket] = deque()
        self.windows: list[tuple[float, float]] = []
        self.strikes = 0
        self.largest = 0.0

    def run(self, begin: float, end: float) -> None:
        time.sleep(max(0.0, begin - time.monotonic()))
        self.first = resident(self._process_id)
        while time.monotonic() < end:
            time.sleep(self._window)
            started = time.monotonic()
            while time.monotonic() < min(started + self._window, end):
                self._strike()
            self.windows.append((started, time.monotonic()))
            self._let_go(0)

    def _strike(self) -> None:
        kinds = list(STRIKES.values())
        self._held += attempt(kinds[self.strikes % len(kinds)], self._address)
        self.strikes += 1
        self._let_go(HELD_MAX)
        self.largest = max(self.largest, resident(self._process_id))
        time.sleep(1 / STRIKES_PER_S)

    def _let_go(self, kept: int) -> None:
        while len(self._held) > kept:
            self._held.popleft().close()


def besiege(seconds: float, window: float = WINDOW_S) -> Outcome:
    """Attack for about `seconds` in all. Raises where the job or the aggregator fails."""
    with aggregator() as (process_id, address):
        begin = time.monotonic() + 3
        end = begin + 2 * seconds
        attack = Attack(process_id, address, window)
        thread = threading.Thread(target=attack.run, args=(begin, end))
        thread.start()
        environment = {"SPARSEWIRE_AGGREGATORS": str(address)}
        steps = run_ranks(2, take_steps, end, deadline_s=2 * seconds + 60, environment=environment)[
            0
        ]
        thread.join()
    return judge(steps, begin, attack)


def judge(steps: list[tuple[float, float]], begin: float, attack: Attack) -> Outcome:
    def is_attacked(at: float) -> bool:
        return any(start <= at < stop for start, stop in attack.windows)

    quiet = [took for at, took in steps if at > begin and not is_attacked(at)]
    attacked = [took for at, took in steps if is_attacked(at)]
    return Outcome(
        median_ms(quiet),
        median_ms(attacked),
        len(steps),
        attack.strikes,
        attack.largest - attack.first,
    )


def median_ms(times: list[float]) -> float:
    """NaN of none: a busy machine may take all the time to start the ranks."""
    return 1000 * statistics.median(times) if times else math.nan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time under attack")
    print(besiege(parser.parse_args().seconds))
