"""Models of bfloat16 weights for benchmarks, of any size, and new versions of them.

A layer has the tensors of a transformer. Values are of a normal distribution; the next version has
a share of them moved by one representable number, or by two in one of eight cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from sparsewire.weights.versions.tensors import Tensor

WIDTH = 2048
SHAPES = {
    **dict.fromkeys(("query", "key", "value", "output"), (WIDTH, WIDTH)),
    **dict.fromkeys(("gate", "up", "down"), (4 * WIDTH, WIDTH)),
    **dict.fromkeys(("norm", "second_norm"), (WIDTH,)),
}
TWICE = 1 / 8
POOL = 4 << 20
Model = dict[str, Tensor]
Bits = NDArray[np.uint16]


def tensors(nbytes: int, seed: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Those of layer after layer up to so many bytes, one at a time; a seed makes the same bits."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(POOL, np.float32) * np.float32(0.02)
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    left = nbytes
    for number, (name, shape) in enumerate(cycle(SHAPES.items())):
        bits = _drawn(pool, shape, random)
        left -= bits.nbytes
        if left < 0:
            return
        yield f"layers.{number // len(SHAPES)}.{name}", Tensor("BF16", shape, bits.view(np.uint8))


def model(nbytes: int) -> Model:
    return dict(tensors(nbytes))


def _drawn(pool: Bits, shape: tuple[int, ...], random: np.random.Generator) -> Bits:
    """Values of a pool, which are quicker than so many drawn anew."""
    return np.resize(np.roll(pool, random.integers(POOL)), int(np.prod(shape)))


def step(tensor: Tensor, share: float, random: np.random.Generator) -> None:
    """Make it its next version, in place; for a share of 1 all of it is drawn anew."""
    bits = tensor.data.view(np.uint16)
    if share == 1:
        bits[:] = np.resize(random.permuted(bits[:POOL]), len(bits))
    elif share:
        _move(bits, share, random)


def _move(bits: Bits, share: float, random: np.random.Generator) -> None:
    gaps = random.geometric(share, int(1.1 * share * len(bits)) + 64)
    positions = np.cumsum(gaps) - 1
    positions = positions[: np.searchsorted(positions, len(bits))]
    sizes = np.where(random.random(len(positions)) < TWICE, 2, 1)
    bits[positions] += (sizes * random.choice([-1, 1], len(positions))).astype(np.uint16)


def nbytes_of(tensors: Model) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
