"""What a job by datagrams notices of an attack on its slots: step times, and counters.

    python benchmarks/slots_attack.py --transport udp --seconds 60 --record

In the lab, as root: 4 ranks at 500 Mbit/s, an aggregator at 2 Gbit/s, and a host that sends 10,000
datagrams a second to the aggregator and to a rank: garbage, forgeries, and copies of theirs. Quiet
windows and windows of attack take turns; in the former as many go to a host that has no part in
the job. Each sum is checked. A row of the record for each transport.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "attacks"))

from slots_siege import STRIKES_PER_S, Outcome, besiege

NETWORK = {"ranks": 4, "link": "500mbit", "aggregator_link": "2gbit"}


def row_of(outcome: Outcome) -> records.Row:
    told = dataclasses.asdict(outcome)
    return {**told, **told.pop("counters"), "change_share": outcome.change}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transport", choices=["udp", "xdp"], default="udp")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the job")
    parser.add_argument("--rate", type=float, default=STRIKES_PER_S, help="datagrams a second")
    parser.add_argument("--record", action="store_true", help="keep it in the record slots-attack")
    given = parser.parse_args()
    outcome = besiege(given.transport, given.seconds, rate=given.rate, **NETWORK)
    print(outcome)
    if given.record:
        records.keep("slots-attack", given.transport, row_of(outcome))


if __name__ == "__main__":
    main()
