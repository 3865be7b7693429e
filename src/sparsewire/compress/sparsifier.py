"""Operators that send some blocks of a vector and drop the others; a block may be one element."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire.compress.blocks import Blocks
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.errors import CompressError
from sparsewire.compress.kernels import largest
from sparsewire.compress.message import Reader, number_bytes, value_bytes
from sparsewire.compress.positions import decode_positions, encode_positions
from sparsewire.compress.stream import Stream

_SEED_BYTES = 8


class Choice(NamedTuple):
    """Which blocks are sent: their numbers, ascending, and the seed they follow from, if any."""

    blocks: NDArray[np.int64]
    seed: int = 0


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

    @abstractmethod
    def choose(self, x: NDArray[Any], stream: Stream) -> Choice:
        """Which blocks of `x`, shape (dimension,), to send."""

    def describe(self, choice: Choice) -> bytes:
        """The part of the message that tells the choice."""
        code = encode_positions(choice.blocks, self.blocks.count)
        count = number_bytes(choice.blocks.size) if self.kept_blocks is None else b""
        return count + number_bytes(len(code)) + code

    def read_choice(self, reader: Reader) -> Choice:
        """The choice again; raises CompressError if the message is malformed."""
        count = reader.number() if self.kept_blocks is None else self.kept_blocks
        if count > self.blocks.count:
            raise CompressError(f"malformed message: {count} of {self.blocks.count} blocks")
        code = reader.take(reader.number())
        return Choice(decode_positions(code, count, self.blocks.count))

    def pick(self, x: NDArray[Any], choice: Choice) -> NDArray[Any]:
        """The elements of the chosen blocks."""
        values: NDArray[Any] = x[self.blocks.elements(choice.blocks)]
        return values

    def check_scale(self, values: NDArray[Any]) -> None:
        """Raise CompressError where `scale` times an element would overflow."""
        limit = float(np.finfo(self.dtype).max) / self.scale
        if self.scale > 1 and values.size and float(np.abs(values).max()) > limit:
            raise CompressError(f"an element times {self.scale:g} is too large for {self.dtype}")

    def place(self, choice: Choice, values: NDArray[Any]) -> NDArray[Any]:
        """The vector with these elements times `scale` at their positions, and zeros elsewhere."""
        result = np.zeros(self.dimension, self.dtype)
        result[self.blocks.elements(choice.blocks)] = values * self.dtype.type(self.scale)
        return result

    def draw(self, x: NDArray[Any], stream: Stream) -> Kept:
        choice = self.choose(x, stream)
        values = self.pick(x, choice)
        self.check_scale(values)
        return Kept(choice, values)

    def pack(self, code: Kept) -> bytes:
        if self.kept_blocks is None and not code.choice.blocks.size:
            return b""
        return self.describe(code.choice) + value_bytes(code.values)

    def unpack(self, reader: Reader) -> Kept:
        if self.kept_blocks is None and reader.is_empty:
            return Kept(Choice(np.empty(0, np.int64)), np.empty(0, self.dtype))
        choice = self.read_choice(reader)
        count = self.blocks.elements(choice.blocks).size
        return Kept(choice, reader.values(count, self.dtype))

    def reconstruct(self, code: Kept) -> NDArray[Any]:
        return self.place(code.choice, code.values)

    def _largest_blocks(self, sizes: NDArray[np.float64]) -> Choice:
        return Choice(largest(sizes, self.kept_blocks or 0))


class SeededSparsifier(Sparsifier):
    """Chooses without looking at the vector, so that a seed of 8 bytes tells the choice."""

    @abstractmethod
    def blocks_of(self, seed: int) -> NDArray[np.int64]:
        """The numbers of the blocks that a seed of 64 bits stands for, ascending."""

    def choose(self, x: NDArray[Any], stream: Stream) -> Choice:
        seed = stream.key()
        return Choice(self.blocks_of(seed), seed)

    def describe(self, choice: Choice) -> bytes:
        return choice.seed.to_bytes(_SEED_BYTES, "little")

    def read_choice(self, reader: Reader) -> Choice:
        seed = int.from_bytes(reader.take(_SEED_BYTES), "little")
        return Choice(self.blocks_of(seed), seed)


def check_kept(count: int, blocks: int) -> int:
    """`count`, if so many blocks can be kept of `blocks`; else CompressError."""
    if not 1 <= count <= blocks:
        raise CompressError(f"k must be 1 to {blocks}, the number there is, not {count}")
    return count
