"""One rank of test_lab_slots.py: sums that must be exact, over a path that loses packets.

Prints what came out, and how: a digest of all results, and the communicator's counters.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from rank_order import BLOCK, Array, bits, block_sparse, reduce_in_rank_order

import sparsewire


def spoilt(part: Array, share: float, *seeds: int) -> Array:
    """The same, of which so large a share is infinite or NaN."""
    draw = np.random.default_rng(seeds)
    values = draw.choice([math.inf, -math.inf, math.nan], part.size)
    return np.where(draw.random(part.size) < share, values, part).astype(np.float32)


def reduce_fixed(parts: list[Array]) -> Array:
    """The sum in fixed point: integers, with an exponent for each block, rounded once."""
    n, size = len(parts), parts[0].size
    with np.errstate(invalid="ignore"):
        plain = np.sum(parts, axis=0)
    finite = [np.where(np.isfinite(part), part, 0).astype(np.float64) for part in parts]
    wide = [np.pad(part, (0, -size % BLOCK)).reshape(-1, BLOCK) for part in finite]
    most = np.max([np.abs(part).max(axis=1, keepdims=True) for part in wide], axis=0)
    exponents = np.maximum(np.frexp(most)[1], -125)
    shift = math.floor(math.log2((2**31 - 1) / n)) - exponents
    total = sum(np.rint(np.ldexp(part, shift)) for part in wide)
    added = np.ldexp(total, -shift).ravel()[:size].astype(np.float32)
    marked = np.where(np.isnan(plain), np.float32(math.nan), plain)
    return np.where(np.isfinite(plain), added, marked)


def reduce(given: dict[str, object]) -> dict[str, object]:
    digest = hashlib.sha256()
    fixed = given["arithmetic"] == "fixed"
    with sparsewire.init(timeout=100) as comm:
        for seed, density in enumerate(given["densities"]):
            parts = [
                block_sparse(rank, given["elements"], "float32", density, seed)
                for rank in range(comm.world_size)
            ]
            parts = [spoilt(part, given["spoilt"], seed, r) for r, part in enumerate(parts)]
            x = parts[comm.rank].copy()
            comm.all_reduce(x)
            expected = reduce_fixed(parts) if fixed else reduce_in_rank_order(parts, "sum")
            assert bits(x + 0.0) == bits(expected + 0.0), f"density {density}: wrong sums"
            digest.update(bits(x))
        return {"digest": digest.hexdigest(), **comm.stats()}


if __name__ == "__main__":
    os.environ["SPARSEWIRE_ARITHMETIC"] = (settings := json.loads(sys.argv[1]))["arithmetic"]
    print(json.dumps(reduce(settings)))
