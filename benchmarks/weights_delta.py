"""Deltas of weights against what people use: bytes a changed element, and speed on one processor.

    python benchmarks/weights_delta.py --record

Weights are bfloat16 of a normal distribution. In the new version a share of them, drawn uniformly,
has moved by one representable number, or by two in one of eight cases, up or down. The entropy of
that is known. Times are the best of several; a step back is applied to a copy.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import records
import zstandard
from best_of import best_of
from numpy.typing import NDArray

from sparsewire._core import write_prepared
from sparsewire.weights.versions.chunks import prepare_chunk
from sparsewire.weights.versions.coding import Coder, checksum
from sparsewire.weights.versions.tensors import Tensor

ELEMENTS = 32 << 20
ROUNDS = 5
SHARES = (0.001, 0.01, 0.03, 0.1)
TWICE = 1 / 8
Bits = NDArray[np.uint16]


def versions(share: float, random: np.random.Generator) -> tuple[Bits, Bits]:
    """The bits of a version and of the next one."""
    values = random.standard_normal(ELEMENTS, np.float32) * np.float32(0.02)
    base = (values.view(np.uint32) >> 16).astype(np.uint16)
    moves = random.random(ELEMENTS, np.float32) < share
    steps = np.where(random.random(ELEMENTS) < TWICE, 2, 1) * random.choice([-1, 1], ELEMENTS)
    return base, (base + np.where(moves, steps, 0)).astype(np.uint16)


def entropy_bytes(share: float) -> float:
    """Of a changed element: its position, and its step."""
    position = -(math.log2(share) + (1 - share) / share * math.log2(1 - share))
    step = 1 - TWICE * math.log2(TWICE) - (1 - TWICE) * math.log2(1 - TWICE)
    return (position + step) / 8


def tensor_of(bits: Bits) -> Tensor:
    return Tensor("BF16", bits.shape, bits.view(np.uint8))


def prepare(codes: list[bytes], base: Tensor) -> list[bytes]:
    both = zip(codes, base.chunks(), strict=True)
    return [
        prepare_chunk(code, chunk, base.format.width, base.format.floating) or b""
        for code, chunk in both
    ]


def write(prepared: list[bytes], tensor: Tensor) -> None:
    both = zip(prepared, tensor.chunks(), strict=True)
    assert all(write_prepared(each, chunk, tensor.format.width) for each, chunk in both)


def measured(share: float, random: np.random.Generator) -> records.Row:
    base, fresh = versions(share, random)
    entropy = {"entropy_bytes_per_change": entropy_bytes(share)}
    return sizes(base, fresh) | entropy | speeds(base, fresh)


def codes_of(old: Tensor, new: Tensor, coder: Coder) -> list[bytes]:
    return [each.code for each in coder.encode(old, new)]


def sizes(base: Bits, fresh: Bits) -> records.Row:
    """Bytes a changed element."""
    nbytes, changed = base.nbytes, int((base != fresh).sum())
    with Coder(1) as coder:
        codes = codes_of(tensor_of(base), tensor_of(fresh), coder)
    xor = (base ^ fresh).tobytes()
    return {
        "bytes_per_change": sum(map(len, codes)) / changed,
        "coordinates_bytes_per_change": 6.0,
        "zstd_1_bytes_per_change": len(zstandard.compress(xor, 1)) / changed,
        "zstd_19_bytes_per_change": len(zstandard.compress(xor[: nbytes // 8], 19)) * 8 / changed,
    }


def speeds(base: Bits, fresh: Bits) -> records.Row:
    """Bytes of weights a second, of each thing that a publisher and a reader do."""
    nbytes = base.nbytes
    old, new = tensor_of(base), tensor_of(fresh)
    with Coder(1) as coder:
        encode_s, codes = best_of(
            ROUNDS, lambda: (checksum(new.data), codes_of(old, new, coder))[1]
        )
        copies = iter([tensor_of(base.copy()) for _ in range(ROUNDS)])
        made: list[Tensor] = []

        def apply() -> None:
            made.append(next(copies))
            coder.apply(codes, made[-1])

        apply_s, _ = best_of(ROUNDS, apply)
        checksum_s, _ = best_of(ROUNDS, lambda: checksum(new.data))
    prepare_s, prepared = best_of(ROUNDS, lambda: prepare(codes, old))
    made.append(tensor_of(base.copy()))
    write_s, _ = best_of(ROUNDS, lambda: write(prepared, made[-1]))
    assert all((each.data == new.data).all() for each in made)
    return {
        "encode_bytes_per_s": nbytes / encode_s,
        "apply_bytes_per_s": nbytes / apply_s,
        "prepare_bytes_per_s": nbytes / prepare_s,
        "write_prepared_bytes_per_s": nbytes / write_s,
        "checksum_bytes_per_s": nbytes / checksum_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the record weights")
    arguments = parser.parse_args()
    for share in SHARES:
        row = measured(share, np.random.default_rng(0))
        print(f"{share:.1%}", *(f"{name} {value:.4g}" for name, value in row.items()), sep="\n  ")
        if arguments.record:
            records.keep("weights", f"uniform/{share:g}", row)


if __name__ == "__main__":
    main()
