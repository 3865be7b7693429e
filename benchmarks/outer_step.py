"""The time of an outer step of 25 million float32 on one core: the delta, its code, the sum of one
replica, the outer optimizer and the parameters, without a network."""

from __future__ import annotations

import argparse
import time
from typing import Any

import records
import torch
import torch.distributed as dist
from torch import nn

from sparsewire.torch import outer

ELEMENTS = 25_000_000
ROUNDS = 27
COMPRESSORS = {"dense": "dense", "chunk-top-k-2-bit": "centroids:64+span-top-k:64:4096"}


def measured(compressor: str) -> records.Row:
    """The quickest and the median of some rounds; the first ones only touch memory."""
    torch.set_num_threads(1)
    model = nn.Module()
    model.weight = nn.Parameter(torch.randn(ELEMENTS // 4096, 4096) * 0.02)
    inner = torch.optim.SGD(model.parameters(), 0.1)
    moves = torch.randn_like(model.weight) * 1e-3
    alone = outer.StoreMembership(dist.HashStore(), "alone", 1, first=["alone"])
    with outer.OuterOptimizer(
        model, inner, every=1, compressor=compressor, decay=0.95, membership=alone
    ) as optimizer:
        seconds = [one_round(optimizer, model, moves) for _ in range(ROUNDS)][2:]
    return {
        "elements": model.weight.numel(),
        "quickest_s": min(seconds),
        "median_s": sorted(seconds)[len(seconds) // 2],
    }


def one_round(optimizer: outer.OuterOptimizer, model: Any, moves: torch.Tensor) -> float:
    with torch.no_grad():
        model.weight.add_(moves)
    time.sleep(0.2)  # Digests are taken while training goes on.
    optimizer.steps += 1
    begun = time.perf_counter()
    optimizer.sync()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the record outer_step")
    given = parser.parse_args()
    for name, compressor in COMPRESSORS.items():
        row = measured(compressor)
        print(name, *(f"{key} {value:.4g}" for key, value in row.items()))
        if given.record:
            records.keep("outer_step", name, row)


if __name__ == "__main__":
    main()
