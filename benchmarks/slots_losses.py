"""Sums by datagrams over links that lose real packets: whether they are exact, and how many
datagrams are sent twice.

    python benchmarks/slots_losses.py --elements 5e6 --record

In the lab, as root: 4 ranks at 500 Mbit/s, an aggregator at 2 Gbit/s, either engine. A share of the
packets is lost each way between a rank and its aggregator, half of it on each of their two links.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import slots_job

from sparsewire.tools.lab import Lab

RANKS, LINK, AGGREGATOR_LINK = 4, "500mbit", "2gbit"
RANK = Path(slots_job.__file__).parent / "net" / "slots_rank.py"
ENGINES = [("udp", "exact"), ("udp", "fixed"), ("xdp", "fixed")]
LOSSES = [0.001, 0.01, 0.05, 0.2]
PATIENCE_S = 300.0


def measure(transport: str, arithmetic: str, loss: float, elements: int) -> records.Row:
    """Each rank compares its sums with a plain reference, and fails where a bit differs."""
    given = {"arithmetic": arithmetic, "elements": elements, "densities": [1.0, 0.2]}
    place = {"aggregators": 1, "aggregator_link": AGGREGATOR_LINK, "transport": transport}
    with Lab(RANKS, LINK, loss=1 - math.sqrt(1 - loss), **place) as lab:
        aggregation = slots_job.start_aggregators(lab)
        ranks = slots_job.start_ranks(lab, aggregation, RANKS, RANK, json.dumps(given))
        told = slots_job.what_they_say(ranks, PATIENCE_S)
        lost = lab.lost()
    sent, again = (
        sum(rank[name] for rank in told) for name in ("datagrams_sent", "retransmissions")
    )
    return {
        "ranks": RANKS,
        "equal": len({rank["digest"] for rank in told}) == 1,
        "sent": sent,
        "lost": lost,
        "again": again,
        "most_again": math.floor(2 * lost + sent / 100),
        "again_over_lost": again / lost,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=float, default=5e6, help="of each of two sums")
    parser.add_argument("--record", action="store_true", help="keep it in records/slots-losses")
    given = parser.parse_args()
    for transport, arithmetic in ENGINES:
        for loss in LOSSES:
            row = measure(transport, arithmetic, loss, int(given.elements))
            name = f"{transport}/{arithmetic}/{loss:g}"
            print(name, row, flush=True)
            if given.record:
                records.keep("slots-losses", name, row)


if __name__ == "__main__":
    main()
