"""Tensors of weights as bytes: their formats, by the names that safetensors gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.versions.names import shown

Bytes = NDArray[np.uint8]


class Format(NamedTuple):
    """Bits of an element, and whether the coder may take them as a floating-point number."""

    bits: int
    floating: bool

    @property
    def width(self) -> int:
        """Bytes of what the coder takes as one element: a byte, where several share it."""
        return max(self.bits // 8, 1)


FORMATS = {
    "F64": Format(64, True),
    "F32": Format(32, True),
    "F16": Format(16, True),
    "BF16": Format(16, True),
    "F8_E4M3": Format(8, True),
    "F8_E5M2": Format(8, True),
    "F8_E4M3FNUZ": Format(8, True),
    "F8_E5M2FNUZ": Format(8, True),
    "F8_E8M0": Format(8, False),
    "C64": Format(64, False),
    "I64": Format(64, False),
    "U64": Format(64, False),
    "I32": Format(32, False),
    "U32": Format(32, False),
    "I16": Format(16, False),
    "U16": Format(16, False),
    "I8": Format(8, False),
    "U8": Format(8, False),
    "BOOL": Format(8, False),
    # Of the OCP's microscaling formats: several elements share a byte, or three bytes.
    "F6_E2M3": Format(6, False),
    "F6_E3M2": Format(6, False),
    "F4": Format(4, False),
}


def format_of(name: str, dtype: Any) -> Format:
    """The format of a tensor; raises DataError for a dtype that is not known."""
    if not isinstance(dtype, str) or dtype not in FORMATS:
        raise DataError(f"{name}: dtype {dtype!r} is not known: use one of {', '.join(FORMATS)}")
    return FORMATS[dtype]


def coded_elements(dtype: str, shape: tuple[int, ...]) -> int:
    """What the coder takes as elements of a tensor with a known dtype, which fills whole bytes."""
    form = FORMATS[dtype]
    return math.prod(shape) * form.bits // (8 * form.width)


class Tensor(NamedTuple):
    """One tensor of a version: `data` are its bytes, in C order, shape (elements * width,).

    `shape` counts elements as safetensors does: two F4 are a byte.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Bytes

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def elements(self) -> int:
        """What the coder takes as elements: bytes, where several elements share one."""
        return coded_elements(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.format.width

    @property
    def chunk_count(self) -> int:
        return -(-self.elements // DELTA_CHUNK)

    def chunks(self) -> Iterator[Bytes]:
        """Pieces of DELTA_CHUNK elements, the last one of what is left."""
        size = DELTA_CHUNK * self.format.width
        return (self.data[begin : begin + size] for begin in range(0, len(self.data), size))


def check_alike(name: str, base: Tensor, fresh: Tensor) -> None:
    """Raise MismatchError where both versions of a tensor differ in dtype or shape."""
    if (base.dtype, base.shape) != (fresh.dtype, fresh.shape):
        raise MismatchError(
            f"{shown(name)} has dtype {base.dtype} and shape {list(base.shape)} in the old "
            f"version, and {fresh.dtype} and {list(fresh.shape)} in the new one: a delta keeps "
            "both. Send the new version whole, or give the tensor another name"
        )
