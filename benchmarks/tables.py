"""Prints the records that benchmarks/run.sh left as the Markdown tables of docs/benchmarks.md.

python benchmarks/tables.py FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NAMES = (
    "colocated",
    "dedicated",
    "eight-hosts",
    "slow-link",
    "small-lab",
    "small-loopback",
    "loopback",
    "scattered",
    "scattered-loopback",
    "sparse-loopback",
    "sparse-lab",
    "sparse-eight-hosts",
    "sparse-zipf",
    "against-gloo-sparse",
    "against-gloo-sparse-eight",
)
GRIDS = ("grid-loopback-2", "grid-loopback-4", "grid-loopback-8", "grid-lab")
HEAD = (
    "| size | pattern | density | gloo ms | sparsewire ms (p99) | speed-up | limit ms | "
    "of the limit | sent MB | CPU ms |\n|---|---|---|---|---|---|---|---|---|---|"
)

CANDIDATES = ("allgather", "ssar_recursive_double", "ssar_split_allgather", "stream")
GRID_HEAD = (
    "| size | density | allgather ms | doubling ms | split ms | stream ms | auto ms | "
    "over the best |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main(folder: Path) -> None:
    for name, record in records(folder, NAMES):
        print(f"\n### {name}\n\n{HEAD}")
        for result in record["results"]:
            print(row(result))
            if "gloo-sparse" in result["backends"]:
                print(sparse_row(result))
    for name, record in records(folder, GRIDS):
        print(f"\n### {name}\n\n{GRID_HEAD}")
        for cell in record["cells"]:
            print(grid_row(cell))


def records(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of the records that were measured, by their names."""
    for name in names:
        file = folder / f"{name}.json"
        if file.exists():
            yield name, json.loads(file.read_text())


def row(result: dict[str, Any]) -> str:
    gloo, ours = result["backends"]["gloo"], result["backends"]["sparsewire"]
    limit = ours["limit_s"]
    sent = ours["interface_bytes_sent_per_rank"] or ours["counted_bytes_sent_per_rank"]
    cells = (
        size(result["bytes"]),
        result["pattern"] + (f", by {ours['chosen']}" if ours.get("chosen") else ""),
        f"{result['density']:g}",
        milliseconds(gloo["median_s"]),
        f"{milliseconds(ours['median_s'])} ({milliseconds(ours['p99_s'])})",
        f"{ours['speedup_over_gloo']:.3g}x",
        milliseconds(limit) if limit else "-",
        f"{limit / ours['median_s']:.0%}" if limit else "-",
        f"{sent / 1e6:.3g}",
        milliseconds(ours["user_cpu_s"] + ours["system_cpu_s"] + ours["aggregator_cpu_s"]),
    )
    return "| " + " | ".join(cells) + " |"


def sparse_row(result: dict[str, Any]) -> str:
    """The same case, beside gloo's own all_reduce of sparse tensors."""
    theirs, ours = result["backends"]["gloo-sparse"], result["backends"]["sparsewire"]
    cells = (
        size(result["bytes"]),
        "against gloo's sparse all_reduce",
        f"{result['density']:g}",
        milliseconds(theirs["median_s"]),
        milliseconds(ours["median_s"]),
        f"{ours['speedup_over_gloo_sparse']:.3g}x",
    )
    return "| " + " | ".join(cells) + " | | | | |"


def grid_row(cell: dict[str, Any]) -> str:
    times = (milliseconds(cell["seconds"][name]) for name in CANDIDATES)
    cells = (
        size(cell["bytes"]),
        f"{cell['density']:g}",
        *times,
        f"{milliseconds(cell['auto_s'])} ({cell['chosen']})",
        f"{cell['ratio']:.2f}",
    )
    return "| " + " | ".join(cells) + " |"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def size(count: int) -> str:
    return f"{count // 1024} KiB" if count < 10_000_000 else f"{count / 1e6:.0f} MB"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
