"""Bytes of deltas at every share of changes, beside those of the version sent whole.

    python benchmarks/weights_sweep.py --record

For each dtype a share of normally distributed weights, drawn uniformly, moves by one representable
number, or gets a new value of the same distribution. The version sent whole is its shortest code
over zeros. No delta may take more than 1.005 times as much.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import records
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK
from sparsewire.weights.versions.chunks import encode_chunk

MOST = 1.005
SHARES = (0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
Bits = NDArray[Any]


class Kind(NamedTuple):
    """A dtype: bytes of an element, and whether it is a floating-point number."""

    width: int
    floating: bool

    def weights(self, random: np.random.Generator) -> Bits:
        """Bits of a chunk of normally distributed weights."""
        values = random.standard_normal(DELTA_CHUNK, np.float32)
        if not self.floating:
            return np.clip(np.round(32 * values), -127, 127).astype(np.int8).view(np.uint8)
        # The upper byte of float16 has the exponent and mantissa of F8_E5M2.
        narrow = values.astype(np.float16).view(np.uint16) if self.width == 1 else values
        bits = narrow.view(f"u{narrow.itemsize}")
        return (bits >> (8 * (narrow.itemsize - self.width))).astype(f"u{self.width}")


KINDS = {
    "BF16": Kind(2, True),
    "F32": Kind(4, True),
    "F8_E5M2": Kind(1, True),
    "I8": Kind(1, False),
}


def versions(kind: Kind, share: float, is_step: bool, random: np.random.Generator) -> list[Bits]:
    """A version and the next one."""
    base = kind.weights(random)
    steps = random.choice(np.array([1, -1]).astype(base.dtype), len(base))
    fresh = base + steps if is_step else kind.weights(random)
    return [base, np.where(random.random(len(base)) < share, fresh, base)]


def measured(kind: Kind, share: float, is_step: bool) -> records.Row:
    base, fresh = versions(kind, share, is_step, np.random.default_rng(0))
    chunk = fresh.view(np.uint8)
    code, changed = encode_chunk(base.view(np.uint8), chunk, *kind)
    whole, _ = encode_chunk(np.zeros_like(chunk), chunk, *kind)
    ratio = len(code) / len(whole)
    assert ratio <= MOST, (kind, share, is_step, ratio)
    return {"bytes_per_change": len(code) / changed, "of_whole": ratio, "form": code[0]}


def rows() -> Iterator[tuple[str, records.Row]]:
    for name, kind in KINDS.items():
        for change in ("steps", "values"):
            for share in SHARES:
                yield f"sweep/{name}/{change}/{share:g}", measured(kind, share, change == "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write rows of the record weights")
    arguments = parser.parse_args()
    for name, row in rows():
        print(f"{name:28}", *(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
        if arguments.record:
            records.keep("weights", name, row)


if __name__ == "__main__":
    main()
