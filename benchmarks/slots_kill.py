"""Kills ranks amid sums by datagrams: how long the others take to name them.

    python benchmarks/slots_kill.py --transport udp --kills 20 --record

In the lab, as root: 4 ranks at 500 Mbit/s, and one aggregator at 2 Gbit/s, which serves a new job
after each kill, and at last one whose sums are checked. A row of the record for each transport.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import slots_job

from sparsewire.tools.lab import Lab
from sparsewire.tools.lab.aggregators import Aggregation

RANKS, LINK, AGGREGATOR_LINK = 4, "500mbit", "2gbit"
# A sum takes about a second, so that most kills are amid one.
ELEMENTS = 10_000_000
SOONEST_S, LATEST_S = 0.2, 2.0
PATIENCE_S = 90.0
RANK = Path(__file__).with_name("slots_kill_rank.py")


def kill_one(lab: Lab, aggregation: Aggregation, victim: int, delay: float) -> list[float]:
    """Seconds until each of those that named the victim did so."""
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, RANK, ELEMENTS)
    slots_job.await_ready(ranks)
    time.sleep(delay)
    killed = time.monotonic()
    ranks.pop(victim).kill()
    told = slots_job.what_they_say(ranks, PATIENCE_S)
    return [at - killed for lost, at in told if lost == victim]


def checked_steps(lab: Lab, aggregation: Aggregation) -> int:
    """Of a job after all kills."""
    ranks = slots_job.start_ranks(lab, aggregation, RANKS, slots_job.STEPS, 2, 500_000)
    told, *_ = slots_job.what_they_say(ranks, PATIENCE_S)
    return len(told["steps"])


def measure(transport: str, kills: int, seed: int) -> records.Row:
    draw = random.Random(seed)
    with Lab(
        RANKS, LINK, aggregators=1, aggregator_link=AGGREGATOR_LINK, transport=transport
    ) as lab:
        aggregation = slots_job.start_aggregators(lab)
        named = []
        for number in range(kills):
            delay = draw.uniform(SOONEST_S, LATEST_S)
            named.append(kill_one(lab, aggregation, number % RANKS, delay))
            print(number, [f"{each:.3f}" for each in named[-1]], flush=True)
        steps = checked_steps(lab, aggregation)
    times = [each for of_kill in named for each in of_kill]
    return {
        "killed": kills,
        "named": sum(len(of_kill) == RANKS - 1 for of_kill in named),
        "median_s": statistics.median(times),
        "longest_s": max(times),
        "steps_after": steps,
        "seed": seed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transport", choices=["udp", "xdp", "tcp"], default="udp")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="keep it in the record slots-kill")
    given = parser.parse_args()
    row = measure(given.transport, given.kills, given.seed)
    print(row)
    if given.record:
        records.keep("slots-kill", given.transport, row)


if __name__ == "__main__":
    main()
