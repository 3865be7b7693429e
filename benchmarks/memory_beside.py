"""Memory that an all_reduce takes beside its tensor, for several sizes: record memory.

    python benchmarks/memory_beside.py --record

What is measured is that of tests/core/test_memory.py: the growth of a rank's resident set at its
peak. Rows are of sizes and densities; beside-the-tensor has the least and the most of them all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import records

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "core"))

from support import run_ranks
from test_memory import peak_during_all_reduce

RANKS, ITEM_BYTES = 4, 4
SIZES = (1_000_000, 10_000_000, 50_000_000, 250_000_000)
DENSITIES = (1.0, 0.3, 0.01)
DEADLINE_S = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=int, nargs="*", default=SIZES)
    parser.add_argument("--record", action="store_true", help="keep it in record memory")
    given = parser.parse_args()
    rows: dict[str, records.Row] = {}
    for elements in given.elements:
        for density in DENSITIES:
            grown = run_ranks(
                RANKS, peak_during_all_reduce, elements, density, deadline_s=DEADLINE_S
            )
            row = {"least_bytes": min(grown), "most_bytes": max(grown)}
            rows[f"{records.size(ITEM_BYTES * elements)}/{density:g}"] = row
            print(elements, density, row, flush=True)
    rows["beside-the-tensor"] = {
        "least_bytes": min(row["least_bytes"] for row in rows.values()),
        "most_bytes": max(row["most_bytes"] for row in rows.values()),
    }
    for name, row in rows.items() if given.record else ():
        records.keep("memory", name, row, ranks=RANKS)


if __name__ == "__main__":
    main()
