"""Bytes of deltas where bytes repeat: with what zstd sees, and without.

    python benchmarks/weights_repeats.py --record

Weights are a chunk of bfloat16 of a normal distribution, seen as 1,024 rows.
"""

from __future__ import annotations

import argparse

import numpy as np
import records
import zstandard
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK, encode_delta
from sparsewire.weights.versions.chunks import encode_chunk
from sparsewire.weights.versions.packing import packing_of

ROWS = 1024
Bits = NDArray[np.uint16]


def weights(random: np.random.Generator, elements: int = DELTA_CHUNK) -> Bits:
    values = random.standard_normal(elements, np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def cases(base: Bits, random: np.random.Generator) -> dict[str, Bits]:
    """New versions, by what is done to the base."""
    rows = base.reshape(ROWS, -1)
    copied = rows.copy()
    copied[random.choice(ROWS, ROWS // 2, replace=False)] = rows[: ROWS // 2]
    few = random.random(len(base)) < 0.1
    moved = np.resize(weights(random, 1 << 14), len(base))
    seventh, sixty_fourth = np.zeros((2, len(base)), np.uint16)
    seventh[::7] = 0x55
    sixty_fourth[::64] = np.resize(weights(random, ROWS), len(base) // 64)
    return {
        "one of 4 values at 10%": np.where(few, random.choice(weights(random, 4), len(base)), base),
        "half of the rows copied": copied.reshape(-1),
        "rows permuted": rows[random.permutation(ROWS)].reshape(-1),
        "one row tiled": np.resize(base[:ROWS], len(base)),
        "16,384 values tiled": moved,
        "signs turned": base ^ np.uint16(0x8000),
        "XOR with 1,024 values": base ^ np.resize(weights(random, ROWS), len(base)),
        "XOR with one value at each 7th": base ^ seventh,
        "XOR with 1,024 values at each 64th": base ^ sixty_fourth,
        "zeros": np.zeros_like(base),
    }


def measured(base: Bits, fresh: Bits) -> records.Row:
    old, new = base.view(np.uint8), np.ascontiguousarray(fresh).view(np.uint8)
    code, changed = encode_chunk(old, new, 2, True)
    return {
        "changed_share": changed / len(base),
        "coded_bytes": len(code),
        "packed": packing_of(code) is not None,
        "native_bytes": len(encode_delta(old, new, 2, True)[0]),
        "xor_zstd_3_bytes": len(zstandard.compress((old ^ new).tobytes(), 3)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write rows of the record weights")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    base = weights(random)
    for name, fresh in cases(base, random).items():
        row = measured(base, fresh)
        print(f"{name:36}", *(f"{key} {value:.6g}" for key, value in row.items()), flush=True)
        if arguments.record:
            records.keep("weights", f"repeats/{name}", row)


if __name__ == "__main__":
    main()
