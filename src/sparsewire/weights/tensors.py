"""Tensors of weights as bytes: their formats, by the names that safetensors gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import DataError, MismatchError

Bytes = NDArray[np.uint8]


class Format(NamedTuple):
    """Bytes of an element, and whether its bits are those of a floating-point number."""

    width: int
    floating: bool


FORMATS = {
    "F64": Format(8, True),
    "F32": Format(4, True),
    "F16": Format(2, True),
    "BF16": Format(2, True),
    "F8_E4M3": Format(1, True),
    "F8_E5M2": Format(1, True),
    "F8_E4M3FNUZ": Format(1, True),
    "F8_E5M2FNUZ": Format(1, True),
    "F8_E8M0": Format(1, False),
    "C64": Format(8, False),
    "I64": Format(8, False),
    "U64": Format(8, False),
    "I32": Format(4, False),
    "U32": Format(4, False),
    "I16": Format(2, False),
    "U16": Format(2, False),
    "I8": Format(1, False),
    "U8": Format(1, False),
    "BOOL": Format(1, False),
}


def format_of(name: str, dtype: Any) -> Format:
    """The format of a tensor; raises DataError for a dtype that is not known."""
    if not isinstance(dtype, str) or dtype not in FORMATS:
        raise DataError(f"{name}: dtype {dtype!r} is not known: use one of {', '.join(FORMATS)}")
    return FORMATS[dtype]


class Tensor(NamedTuple):
    """One tensor of a version: `data` are its bytes, in C order, shape (elements * width,)."""

    dtype: str
    shape: tuple[int, ...]
    data: Bytes

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

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
            f"{name} has dtype {base.dtype} and shape {list(base.shape)} in the old version, and "
            f"{fresh.dtype} and {list(fresh.shape)} in the new one: a delta keeps both. Send the "
            "new version whole, or give the tensor another name"
        )
