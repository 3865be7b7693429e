"""Freezes ranks at random moments, by tests/chaos/freeze.py: record freeze.

python benchmarks/ranks_frozen.py --freezes 40 --seed 9 --record
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests" / "chaos"))

import freeze


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--freezes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--record", action="store_true", help="keep it in record freeze")
    given = parser.parse_args()
    lost, thawed = freeze.freezes(given.freezes, given.seed)
    delays = [seconds for _, seconds in lost]
    rows: dict[str, records.Row] = {
        "for-good": {
            "frozen": len(lost),
            "named": sum(good for good, _ in lost),
            "median_s": statistics.median(delays),
            "longest_s": max(delays),
        },
        "for-a-while": {"frozen": len(thawed), "same_bits": sum(thawed)},
    }
    print(*rows.items(), sep="\n")
    for name, row in rows.items() if given.record else ():
        timeout_s = freeze.PEER_TIMEOUT_S
        records.keep("freeze", name, row, ranks=freeze.WORLD, peer_timeout_s=timeout_s)


if __name__ == "__main__":
    main()
