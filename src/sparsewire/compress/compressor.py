"""The interface of compression operators: a random map on vectors, its quality, its code."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import first_not_finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marked
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.compress.vectors import add_scaled, as_kind_of, as_vector
from sparsewire.errors import CompressError

Vector = TypeVar("Vector")

_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class Compressor(ABC):
    """A random map C on vectors of `dimension` elements of `dtype`, float32 or float64.

    Vectors of another floating-point type are converted. C(0) = 0. Compressors keep no state
    between calls: what is random comes from the draws. Settings out of range raise CompressError.

    An operator is four small functions around its *code*, what a message means: `draw` makes the
    code of a vector, `pack` and `unpack` turn it into bytes and back, and `reconstruct` makes the
    vector that it stands for. Where that need not be made to be added, `add` is a fifth.
    """

    parts: Sequence[Compressor] = ()
    """The operators in it that see vectors of as many elements."""

    def __init__(self, dimension: int, dtype: DTypeLike = np.float32) -> None:
        self.dimension = operator.index(dimension)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dimension < 1:
            raise CompressError(f"dimension must be at least 1, not {dimension}")
        if self.dtype not in _DTYPES:
            raise CompressError(f"values are sent as float32 or float64, not {self.dtype}")

    @property
    @abstractmethod
    def omega(self) -> float:
        """The least known w with E C(x) = x and E||C(x) - x||^2 <= w ||x||^2; inf where biased."""

    @property
    def contraction(self) -> float:
        """The largest known a with E||C(x) - x||^2 <= (1 - a) ||x||^2; 0 where none is known.

        Of an unbiased operator it is 1/(omega + 1), which holds for C/(omega + 1): see
        `Contractive`.
        """
        return 1 / (self.omega + 1)

    @property
    def error_bound(self) -> float:
        """An upper bound on ||C(x) - x||^2 that holds for all x; inf where none is known."""
        return math.inf

    @property
    def is_biased(self) -> bool:
        """Whether the mean of what is drawn may differ from the vector."""
        return math.isinf(self.omega)

    def follow(self, parameters: Any) -> None:
        """Take vectors for updates of these parameters, where an operator in it compares with them.

        Raises CompressError as `encode` does.
        """
        for part in self.parts:
            part.follow(parameters)

    def encode(self, x: Any, draws: Draws) -> bytes:
        """The message for `x`, an array or tensor of `dimension` elements: all that is sent.

        Raises CompressError for another size, elements that are not finite, or sizes of numbers
        that the operator cannot express in `dtype`.
        """
        return self.pack(self.code(x, draws))

    def code(self, x: Any, draws: Draws) -> Any:
        """The code of `x`, which `pack` makes a message of; arguments and errors of `encode`."""
        return self.draw(as_vector(x, self.dimension, self.dtype), draws)

    def code_of_sum(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> Any:
        """Add `y` to `x`, both of shape (dimension,), `dtype`, contiguous; the code of `x` then.

        Raises CompressError as `encode` does, after the sum is made. Overridden where that takes
        less than two passes.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            x += y
        return self.code(x, draws)

    def code_of_difference(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> Any:
        """The code of x - y, shapes and dtypes as in `code_of_sum`.

        Raises CompressError as `encode` does; `x` is the difference then, and may be otherwise.
        Overridden where that takes fewer passes.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            x -= y
        return self.code(x, draws)

    def decode(self, payload: bytes | memoryview) -> NDArray[Any]:
        """The vector of a message, shape (dimension,), `dtype`; CompressError if malformed."""
        return finite(self.reconstruct(self.read(payload)))

    def read(self, payload: bytes | memoryview) -> Any:
        """The code of a message, for `add`; raises CompressError if it is malformed."""
        reader = Reader(payload)
        code = self.unpack(reader)
        reader.end()
        return code

    def compress(self, x: Vector, draws: Draws) -> Vector:
        """C(x), of the kind, shape, dtype and device of `x`: what `decode(encode(x))` would give.

        Raises CompressError as `encode` does.
        """
        result: Vector = as_kind_of(x, self.reconstruct(self.code(x, draws)))
        return result

    @abstractmethod
    def draw(self, x: NDArray[Any], draws: Draws) -> Any:
        """The code of `x`, shape (dimension,), `dtype`, all finite."""

    @abstractmethod
    def pack(self, code: Any) -> bytes:
        """The message of a code."""

    @abstractmethod
    def unpack(self, reader: Reader) -> Any:
        """The code of a message; raises CompressError if it is malformed."""

    @abstractmethod
    def reconstruct(self, code: Any) -> NDArray[Any]:
        """The vector that a code stands for; the same bits on every machine."""

    def add(self, code: Any, total: NDArray[Any], factor: float = 1.0) -> None:
        """Add `factor` times what a code stands for to `total`, shape (dimension,), contiguous.

        What it stands for, and the product, are rounded to the dtype of `total`. Raises
        CompressError if it is not finite; `total` is as it was then. Overridden where that takes
        less than a vector of its own.
        """
        add_scaled(finite(self.reconstruct(code)), total, factor)

    def marked(self, code: Any) -> Marked | None:
        """The elements of a code, if these are few; None if they may be many.

        Raises CompressError if it is not finite.
        """
        return None


class Identity(Compressor):
    """C(x) = x: omega is 0, and the message holds all values."""

    @property
    def omega(self) -> float:
        return 0.0

    def draw(self, x: NDArray[Any], draws: Draws) -> NDArray[Any]:
        return x

    def pack(self, code: NDArray[Any]) -> bytes:
        return bytes(value_bytes(code))

    def unpack(self, reader: Reader) -> NDArray[Any]:
        return reader.values(self.dimension, self.dtype)

    def reconstruct(self, code: NDArray[Any]) -> NDArray[Any]:
        return np.array(code)


class Wrapper(Compressor):
    """An operator that sends the code of another, `inner`, and has its quality.

    A derived class says what it does otherwise.
    """

    def __init__(self, inner: Compressor, dimension: int | None = None) -> None:
        """For vectors of `dimension` elements, those of `inner` if that is left out."""
        super().__init__(inner.dimension if dimension is None else dimension, inner.dtype)
        self.inner = inner

    @property
    def omega(self) -> float:
        return self.inner.omega

    @property
    def contraction(self) -> float:
        return self.inner.contraction

    def draw(self, x: NDArray[Any], draws: Draws) -> Any:
        return self.inner.draw(x, draws)

    def pack(self, code: Any) -> bytes:
        return self.inner.pack(code)

    def unpack(self, reader: Reader) -> Any:
        return self.inner.unpack(reader)

    def reconstruct(self, code: Any) -> NDArray[Any]:
        return self.inner.reconstruct(code)


class Contractive(Wrapper):
    """C(x)/(omega + 1): biased, and of all multiples of an unbiased C the one with the best bound.

    contraction = 1/(omega + 1): with b = 1/(omega + 1), E||b C(x) - x||^2 = b^2 E||C(x)||^2 + (1 -
    2b) ||x||^2 <= (1 - b) ||x||^2 (Beznosikov et al., On biased compression for distributed
    learning, arXiv 2002.12410). The message is that of C. A biased operator is left as it is.
    """

    omega = float("inf")

    def __init__(self, inner: Compressor) -> None:
        super().__init__(inner)
        self.parts = (inner,)
        self.factor = self.dtype.type(1 if inner.is_biased else inner.contraction)

    def reconstruct(self, code: Any) -> NDArray[Any]:
        scaled: NDArray[Any] = self.inner.reconstruct(code) * self.factor
        return scaled


def finite(decoded: NDArray[Any]) -> NDArray[Any]:
    """`decoded`, if all of it is finite; else CompressError."""
    if first_not_finite(decoded) < decoded.size:
        raise CompressError("malformed message: it stands for a vector that is not finite")
    return decoded
