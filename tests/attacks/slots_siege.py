"""Attacks an aggregator's slots while a job runs there, in the lab; measures what that notices.

Quiet windows and windows of attack take turns, so that what else the machine does hits both. In
quiet ones as many datagrams go to a host that has no part in the job.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsewire.errors import Error
from sparsewire.lab import Lab
from sparsewire.lab.aggregators import Aggregation
from sparsewire.meeting.observation import AggregatorStatus, ask

HERE = Path(__file__).parent
RANKS = 2
ELEMENTS = 500_000
STRIKES_PER_S = 10_000.0
WINDOW_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """Seconds of a step, how many there were, and what the aggregator counted of the job."""

    quiet_s: float
    attacked_s: float
    steps: int
    strikes: int
    sent: int
    """Datagrams of the ranks."""
    counters: dict[str, int]
    strange: int
    """Datagrams of no job."""

    @property
    def change(self) -> float:
        """How much longer a step takes under attack, as a share."""
        return self.attacked_s / self.quiet_s - 1

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.strikes} strikes; step {1000 * self.quiet_s:.2f} ms quiet, "
            f"{1000 * self.attacked_s:.2f} ms under attack ({100 * self.change:+.1f}%); "
            f"{self.sent} datagrams of ranks; the aggregator counted {self.counters}, and "
            f"{self.strange} of no job"
        )


def besiege(
    transport: str,
    seconds: float,
    window: float = WINDOW_S,
    rate: float = STRIKES_PER_S,
    link: str | None = None,
) -> Outcome:
    """Attack for about half of `seconds`. Raises where the job fails."""
    with Lab(RANKS + 1, link, aggregators=1, aggregator_link=link, transport=transport) as lab:
        aggregation = Aggregation.of(lab)
        ((place, argv),) = aggregation.commands()
        lab.popen(place, argv, _variables(aggregation.settings()), stdout=subprocess.DEVNULL)
        address = aggregation.services[0].address
        decoy = lab.addresses[RANKS]
        sink = lab.namespace(RANKS).call(_sink, decoy, address.port)
        target = [lab.interface, *map(str, (*address, decoy, rate, window))]
        # Before the ranks, so that it sees them greet.
        spy = _python(lab, 0, "datagrams.py", *target, stdin=subprocess.PIPE)
        ranks = [
            _python(
                lab, rank, "attacked_rank.py", str(seconds), str(ELEMENTS),
                env={**aggregation.environment(rank), **lab.environment(rank, world_size=RANKS)},
            )
            for rank in range(RANKS)
        ]  # fmt: skip
        with ThreadPoolExecutor() as pool:  # They have more to say than a pipe holds.
            said = [pool.submit(rank.communicate) for rank in ranks]
            last = _watch(lab, place, aggregation, ranks)
            told = [each.result(timeout=60)[0] for each in said]
        windows, _ = spy.communicate("enough\n", timeout=60)
        sink.close()
        failed = [rank for rank, process in enumerate(ranks) if process.returncode]
        assert not failed, f"ranks {failed} failed"
        assert spy.returncode == 0, "the attack failed"
    return _judge(
        [json.loads(line) for line in told],
        [tuple(json.loads(line)) for line in windows.splitlines()],
        last,
    )


def _sink(host: str, port: int) -> socket.socket:
    """Takes datagrams that nobody reads."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, port))
    return opened


def _variables(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def _python(
    lab: Lab,
    place: int,
    script: str,
    *arguments: str,
    env: dict[str, str] | None = None,
    **how: Any,
) -> subprocess.Popen[str]:
    argv = [sys.executable, str(HERE / script), *arguments]
    return lab.popen(place, argv, _variables(env or {}), stdout=subprocess.PIPE, text=True, **how)


def _watch(
    lab: Lab, place: int, aggregation: Aggregation, ranks: list[subprocess.Popen[str]]
) -> AggregatorStatus:
    """What the aggregator told last, while the job was there."""
    last = None
    address, secret = aggregation.services[0].address, aggregation.secret.encode()
    while all(rank.poll() is None for rank in ranks):
        with contextlib.suppress(Error):
            status = lab.namespace(place).call(ask, address, secret)
            last = status if status.jobs else last
        time.sleep(0.3)
    assert last, "there was no job"
    return last


def _judge(
    told: list[dict[str, Any]], windows: list[tuple[float, float, int]], last: AggregatorStatus
) -> Outcome:
    steps = told[0]["steps"]

    def share(at: float, took: float) -> float:
        """Of the step that is under attack."""
        return (
            sum(max(0.0, min(at + took, end) - max(at, begin)) for begin, end, _ in windows) / took
        )

    steps = steps[len(steps) // 20 :]  # The first ones warm up.
    return Outcome(
        _median(took for at, took in steps if share(at, took) == 0),
        _median(took for at, took in steps if share(at, took) > 0.99),
        len(told[0]["steps"]),
        sum(sent for _, _, sent in windows),
        sum(rank["stats"]["datagrams_sent"] for rank in told),
        dict(last.jobs[0].slots),
        last.totals["datagrams_strange"],
    )


def _median(times: Iterator[float]) -> float:
    found = list(times)
    return statistics.median(found) if found else math.nan
