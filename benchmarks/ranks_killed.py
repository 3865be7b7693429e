"""Kills ranks amid DDP whose loader workers live: record kill, by tests/torch/chaos_fork.py.

python benchmarks/ranks_killed.py --kills 50 --record
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "torch"))

import chaos_fork


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--record", action="store_true", help="keep it in record kill")
    given = parser.parse_args()
    found = [chaos_fork.kill_one(number % chaos_fork.RANKS) for number in range(given.kills)]
    times = [seconds for named in found if named for seconds in named]
    row = {
        "killed": given.kills,
        "named": sum(named is not None for named in found),
        "median_s": statistics.median(times),
        "longest_s": max(times),
    }
    print(row)
    if given.record:
        records.keep("kill", "all", row, ranks=chaos_fork.RANKS)


if __name__ == "__main__":
    main()
