"""Attacks an aggregator's slots while a job runs there, in the lab; measures what that notices.

Quiet windows and windows of attack take turns, so that what else the machine does hits both. In
quiet ones as many datagrams go to a host that has no part in the job.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slots_job

from sparsewire.errors import Error
from sparsewire.meeting.aggregators.observation import AggregatorStatus, ask
from sparsewire.options import Address
from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.aggregators import Aggregation

HERE = Path(__file__).parent
RANKS = 2
ELEMENTS = 500_000
STRIKES_PER_S = 10_000.0
WINDOW_S = 2.0
PATIENCE_S = 60.0
ETH_P_ALL = 3


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
    rejected_by_rank: int
    """By the one whose results were forged."""
    rate: float
    """Strikes per second, within windows of attack."""

    @property
    def change(self) -> float:
        """How much longer a step takes under attack, as a share."""
        return self.attacked_s / self.quiet_s - 1

    def __str__(self) -> str:
        return (
            f"{self.steps} steps, {self.strikes} strikes, {self.rate:.0f}/s; "
            f"step {1000 * self.quiet_s:.2f} ms quiet, "
            f"{1000 * self.attacked_s:.2f} ms under attack ({100 * self.change:+.1f}%); "
            f"{self.sent} datagrams of ranks; the aggregator counted {self.counters}, and "
            f"{self.strange} of no job; a rank rejected {self.rejected_by_rank}"
        )


def besiege(
    transport: str,
    seconds: float,
    window: float = WINDOW_S,
    rate: float = STRIKES_PER_S,
    ranks: int = RANKS,
    link: str | None = None,
    aggregator_link: str | None = None,
) -> Outcome:
    """Attack for about half of `seconds`, from a host of its own. Raises where the job fails."""
    with Lab(
        ranks + 2, link, aggregators=1, aggregator_link=aggregator_link, transport=transport
    ) as lab:
        aggregation = slots_job.start_aggregators(lab)
        ((place, address, _),) = aggregation.services
        # Before the ranks, so that it sees them greet.
        with _attack(lab, ranks, address, rate, window) as windows:
            arguments = slots_job.STEPS, seconds, ELEMENTS
            job = slots_job.start_ranks(lab, aggregation, ranks, *arguments)
            with ThreadPoolExecutor() as pool:
                watch = pool.submit(_watch, lab, place, aggregation, job)
                told = slots_job.what_they_say(job, seconds + PATIENCE_S)
    return _judge(told, windows, watch.result())


@contextlib.contextmanager
def _attack(
    lab: Lab, ranks: int, target: Address, rate: float, window: float
) -> Iterator[list[tuple[float, float, int]]]:
    """From the host behind those of the ranks, or, in quiet windows, to the one behind that.

    The windows are there when it has ended.
    """
    decoy = ranks + 1
    windows: list[tuple[float, float, int]] = []
    with (
        lab.namespace(0).call(_tap, lab.interface) as tap,
        lab.namespace(decoy).call(_sink, lab.addresses[decoy], target.port),
    ):
        told = tap.fileno(), lab.interface, *target, lab.addresses[decoy], rate, window
        argv = slots_job.python(HERE / "datagrams.py", *told)
        pipes = {"stdin": subprocess.PIPE, "pass_fds": [tap.fileno()]}
        spy = slots_job.start(lab, ranks, argv, {}, **pipes)
        yield windows
        said, _ = spy.communicate("enough\n", timeout=PATIENCE_S)
        assert spy.returncode == 0, "the attack failed"
        windows += [tuple(json.loads(line)) for line in said.splitlines()]


def _tap(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.bind((interface, ETH_P_ALL))
    return opened


def _sink(host: str, port: int) -> socket.socket:
    """Takes datagrams that nobody reads."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind((host, port))
    return opened


def _watch(
    lab: Lab, place: int, aggregation: Aggregation, ranks: list[slots_job.Process]
) -> AggregatorStatus:
    """What the aggregator told last, while the job had slots there."""
    last = None
    address, secret = aggregation.services[0].address, aggregation.secret.encode()
    while all(rank.poll() is None for rank in ranks):
        with contextlib.suppress(Error):
            status = lab.namespace(place).call(ask, address, secret)
            last = status if any(job.slots for job in status.jobs) else last
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
    strikes = sum(sent for _, _, sent in windows)
    return Outcome(
        _median(took for at, took, _ in steps if share(at, took) == 0),
        _median(took for at, took, _ in steps if share(at, took) > 0.99),
        len(told[0]["steps"]),
        strikes,
        sum(rank["stats"]["datagrams_sent"] for rank in told),
        dict(last.jobs[0].slots),
        last.totals["datagrams_strange"],
        told[0]["stats"]["datagrams_rejected"],
        strikes / sum(end - begin for begin, end, _ in windows),
    )


def _median(times: Iterator[float]) -> float:
    found = list(times)
    return statistics.median(found) if found else math.nan
