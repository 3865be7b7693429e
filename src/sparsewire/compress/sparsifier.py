"""Operators that send some blocks of a vector and drop the others; a block may be one element."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import first_not_finite
from sparsewire.compress.compressor import Compressor, finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Blocks, Marked, Marks
from sparsewire.compress.message import Reader, number_bytes, value_bytes
from sparsewire.compress.vectors import scaled_as
from sparsewire.errors import CompressError


class Choice(NamedTuple):
    """The blocks that are sent, and the seed that gives them, if any."""

    marks: Marks
    seed: int = 0

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Their numbers, ascending."""
        return self.marks.positions()


class Kept(NamedTuple):
    """The code of a sparsifier: a choice, and the elements of its blocks as they are."""

    choice: Choice
    values: NDArray[Any]


class Sparsifier(Compressor):
    """Sends the chosen blocks times `scale`; here the choice travels as positions.

    `kept_blocks` is how many blocks are chosen, None where that differs from vector to vector.
    """

    scale = 1.0
    kept_blocks: int | None = None

    def __init__(
        self, dimension: int, block: int | None = 1, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, dtype)
        self.blocks = Blocks(dimension, block)

    @property
    def most_elements(self) -> int | None:
        """How many elements are kept at most, None where that may be all."""
        if self.kept_blocks is None:
            return None
        return min(self.kept_blocks * self.blocks.size, self.dimension)

    @abstractmethod
    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        """Choose the blocks of `x`, shape (dimension,), to send."""

    def describe(self, choice: Choice) -> bytes:
        """The part of the message that tells the choice."""
        code = choice.marks.encode()
        count = number_bytes(choice.marks.count) if self.kept_blocks is None else b""
        return b"".join((count, number_bytes(len(code)), code))

    def read_choice(self, reader: Reader) -> Choice:
        """The choice again; raises CompressError if the message is malformed."""
        count = reader.number() if self.kept_blocks is None else self.kept_blocks
        if count > self.blocks.count:
            raise CompressError(f"malformed message: {count} of {self.blocks.count} blocks")
        code = reader.view(reader.number())
        return Choice(Marks.decode(code, self.blocks.count, count))

    def check_scale(self, values: NDArray[Any]) -> None:
        """Raise CompressError where `scale` times an element would overflow."""
        if self.scale > 1 and first_not_finite(self._scaled(values)) < values.size:
            raise CompressError(f"an element times {self.scale:g} is too large for {self.dtype}")

    def draw(self, x: NDArray[Any], draws: Draws) -> Kept:
        return self.keep(self.choose(x, draws), x)

    def keep(self, choice: Choice, x: NDArray[Any]) -> Kept:
        """The code of `x` where this is chosen."""
        values = self.blocks.gather(x, choice.marks)
        self.check_scale(values)
        return Kept(choice, values)

    def pack(self, code: Kept) -> bytes:
        if self.kept_blocks is None and not code.choice.marks.count:
            return b""
        return b"".join((self.describe(code.choice), value_bytes(code.values)))

    def unpack(self, reader: Reader) -> Kept:
        if self.kept_blocks is None and reader.is_empty:
            return Kept(Choice(Marks.none(self.blocks.count)), np.empty(0, self.dtype))
        choice = self.read_choice(reader)
        count = self.blocks.marked_elements(choice.marks)
        return Kept(choice, reader.values(count, self.dtype))

    def reconstruct(self, code: Kept) -> NDArray[Any]:
        return self.blocks.scatter(self._scaled(code.values), code.choice.marks)

    def add(self, code: Kept, total: NDArray[Any], factor: float = 1.0) -> None:
        values = scaled_as(finite(self._scaled(code.values)), total.dtype, factor)
        with np.errstate(over="ignore"):
            self.blocks.add(values, code.choice.marks, total)

    def marked(self, code: Kept) -> Marked | None:
        if self.blocks.count == 1:
            return None
        return Marked(code.choice.marks, finite(self._scaled(code.values)), self.blocks)

    def _scaled(self, values: NDArray[Any]) -> NDArray[Any]:
        if self.scale == 1:
            return values
        with np.errstate(over="ignore"):
            scaled: NDArray[Any] = values * self.dtype.type(self.scale)
        return scaled


def check_kept(count: int, blocks: int) -> int:
    """`count`, if so many blocks can be kept of `blocks`; else CompressError."""
    if not 1 <= count <= blocks:
        raise CompressError(f"k must be 1 to {blocks}, the number there is, not {count}")
    return count
