"""How evenly a power law loads the owners of a vector: record balance.

    python benchmarks/owners_load.py --record

Bytes are counted as in tests/core/test_sparse_balance.py. A row for each number of ranks has the
busiest one's bytes, sent or received, over the mean of all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "core"))

from support import run_ranks
from test_sparse_balance import EXPONENT, LENGTH, count_bytes

DRAWS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=(4, 8))
    parser.add_argument("--record", action="store_true", help="keep it in record balance")
    given = parser.parse_args()
    for ranks in given.ranks:
        # Ranks, sums, and sent or received.
        counted = np.array(run_ranks(ranks, count_bytes, LENGTH, DRAWS, None), float)
        row = {"busiest_over_mean": float((counted.max(axis=0) / counted.mean(axis=0)).max())}
        print(ranks, row)
        if given.record:
            records.keep("balance", f"zipf:{EXPONENT:g}/{ranks}", row)


if __name__ == "__main__":
    main()
