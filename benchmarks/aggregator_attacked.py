"""Attacks a dedicated aggregator while a job runs: record attack, by tests/attacks/aggregator.py.

python benchmarks/aggregator_attacked.py --seconds 60 --record
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "attacks"))

import aggregator

MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="time under attack")
    parser.add_argument("--record", action="store_true", help="keep it in record attack")
    given = parser.parse_args()
    found = aggregator.besiege(given.seconds)
    print(found)
    rows: dict[str, records.Row] = {
        "step": {
            "quiet_s": found.quiet_ms / 1e3,
            "attacked_s": found.attacked_ms / 1e3,
            "change_share": found.attacked_ms / found.quiet_ms - 1,
            "steps": found.steps,
            "strikes": found.strikes,
        },
        "aggregator": {"memory_bytes": round(found.growth * MIB)},
    }
    for name, row in rows.items() if given.record else ():
        records.keep("attack", name, row, network="loopback")


if __name__ == "__main__":
    main()
