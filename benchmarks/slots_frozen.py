"""Freezes a rank amid a sum by datagrams: what the others still send, and that sums are right.

    python benchmarks/slots_frozen.py --transport udp --record

In the lab, as root: 8 ranks at 500 Mbit/s, and one aggregator at 4 Gbit/s. A row of the record
slots-frozen for each transport.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import slots_job

from sparsewire.tools.lab import Lab

RANKS, LINK, AGGREGATOR_LINK = 8, "500mbit", "4gbit"
LINK_BYTES_PER_S = 500e6 / 8
# A sum takes more than a second and a half.
ELEMENTS = 25_000_000
FROZEN_AFTER_BYTES, FROM_S, TO_S = 100_000_000, 2.0, 5.0
PATIENCE_S = 120.0


def received_bytes() -> int:
    """By all interfaces of this host but the loopback."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    counted = dict(line.split(":") for line in lines)
    return sum(int(counts.split()[0]) for name, counts in counted.items() if name.strip() != "lo")


def bytes_while_frozen(lab: Lab, rank: slots_job.Process) -> tuple[int, int]:
    """What the aggregator's host gets in the seconds before, and then in those that count."""
    aggregator = lab.namespace(RANKS)
    begin, limit = aggregator.call(received_bytes), time.monotonic() + PATIENCE_S
    while aggregator.call(received_bytes) < begin + FROZEN_AFTER_BYTES:
        assert time.monotonic() < limit, "no sum has begun"
        time.sleep(0.01)
    rank.send_signal(signal.SIGSTOP)
    try:
        counts = [aggregator.call(received_bytes)]
        for pause in (FROM_S, TO_S - FROM_S):
            time.sleep(pause)
            counts.append(aggregator.call(received_bytes))
    finally:
        rank.send_signal(signal.SIGCONT)
    return counts[1] - counts[0], counts[2] - counts[1]


def measure(transport: str) -> records.Row:
    with Lab(
        RANKS, LINK, aggregators=1, aggregator_link=AGGREGATOR_LINK, transport=transport
    ) as lab:
        aggregation = slots_job.start_aggregators(lab)
        ranks = slots_job.start_ranks(lab, aggregation, RANKS, slots_job.STEPS, 2, ELEMENTS)
        slots_job.await_ready(ranks)
        before, meanwhile = bytes_while_frozen(lab, ranks[1])
        thawed = time.monotonic()
        told, *_ = slots_job.what_they_say(ranks, PATIENCE_S)  # Each has checked its sums.
    started, took, _ = told["steps"][0]
    return {
        "ranks": RANKS,
        "first_bytes": before,
        "later_bytes": meanwhile,
        "later_link_share": meanwhile / (TO_S - FROM_S) / LINK_BYTES_PER_S,
        "after_thaw_s": started + took - thawed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transport", choices=["udp", "xdp"], default="udp")
    parser.add_argument("--record", action="store_true", help="keep it in the record slots-frozen")
    given = parser.parse_args()
    row = measure(given.transport)
    print(row)
    if given.record:
        records.keep("slots-frozen", given.transport, row)


if __name__ == "__main__":
    main()
