"""The window from a published part to a view: which of the part's elements a piece takes, and where
they go. Elements of both are counted in C order, as they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sparsewire.weights.shards.changes import Indices
from sparsewire.weights.shards.places import Place
from sparsewire.weights.shards.views import Numbers, Piece

Where = tuple[int | slice, ...]


class Scatter(NamedTuple):
    """Elements one by one: `chosen` are those of the changes, `positions` where they go."""

    positions: Indices
    chosen: slice | Indices


class Copy(NamedTuple):
    """A box: of the part's elements from `begin` to `end`, as an array of `extent`, `taken`; and
    `where` it goes in the view's tensor."""

    begin: int
    end: int
    extent: Numbers
    taken: Where
    where: Where


class Window(NamedTuple):
    """Elements `low` to `high` of a part of shape `extent`.

    They go to `view_low` in a tensor with `view_strides`. The last `shared` dimensions are both's.
    """

    extent: Numbers
    low: Numbers
    high: Numbers
    view_low: Numbers
    view_strides: Numbers
    shared: int

    @classmethod
    def of(cls, place: Place, piece: Piece, view_shape: Numbers) -> Window | None:
        """What a piece takes of the part at `place`; None if that is nothing."""
        shared = len(piece.extent)
        own = len(place.shape) - shared
        sizes = (1,) * own + piece.extent
        begins = [b - p for b, p in zip(piece.source_begin, place.begin, strict=True)]
        low = tuple(max(each, 0) for each in begins)
        ends = zip(begins, sizes, place.extent, strict=True)
        high = tuple(min(begin + size, most) for begin, size, most in ends)
        if any(a >= b for a, b in zip(low, high, strict=True)):
            return None
        inside = [a - b for a, b in zip(low[own:], begins[own:], strict=True)]
        inside = [0] * (len(view_shape) - shared) + inside
        view_low = tuple(a + b for a, b in zip(piece.view_begin, inside, strict=True))
        return cls(place.extent, low, high, view_low, strides(view_shape), shared)

    def scatter(self, positions: Indices) -> Scatter | None:
        """Which of the ascending positions in the part are in the window, and where they go."""
        own = strides(self.extent)
        last = tuple(each - 1 for each in self.high)
        begin, end = np.searchsorted(positions, (_dot(self.low, own), _dot(last, own) + 1))
        chosen: slice | Indices = slice(int(begin), int(end))
        between = positions[begin:end]
        for dimension in self._open():
            at = _coordinates(between, own[dimension], self.extent[dimension])
            inside = (at >= self.low[dimension]) & (at < self.high[dimension])
            before = np.arange(begin, end) if isinstance(chosen, slice) else chosen
            between, chosen = between[inside], before[inside]
        return Scatter(self._moved(between, own), chosen) if len(between) else None

    def _open(self) -> Iterator[int]:
        """Dimensions that bound what lies between the first element of the window and the last."""
        is_spread = False
        for dimension, size in enumerate(self.extent):
            count = self.high[dimension] - self.low[dimension]
            if is_spread and count < size:
                yield dimension
            is_spread |= count > 1

    def _moved(self, positions: Indices, own: Numbers) -> Indices:
        """Where elements of the window go."""
        theirs = (0,) * (len(own) - self.shared) + self._shared(self.view_strides)
        there = _dot(self.view_low, self.view_strides) - _dot(self.low, theirs)
        moved = positions + there
        for dimension, size in enumerate(self.extent):
            bend = theirs[dimension] - own[dimension]
            if self.high[dimension] - self.low[dimension] == 1:
                moved += self.low[dimension] * bend
            elif bend:
                moved += _coordinates(positions, own[dimension], size if dimension else 0) * bend
        return moved

    def copies(self, begin: int, end: int) -> Iterator[Copy]:
        """Boxes that cover what of the part's elements `begin` to `end` is in the window."""
        own = strides(self.extent)
        for box_low, box_high in boxes(self.extent, begin, end):
            low = tuple(map(max, self.low, box_low))
            high = tuple(map(min, self.high, box_high))
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            first = _dot(box_low, own)
            extent = tuple(b - a for a, b in zip(box_low, box_high, strict=True))
            taken = self._where(low, high, box_low)
            there = zip(self._shared(self.low), self._shared(self.view_low), strict=True)
            origin = [a - b for a, b in there]
            lead: Where = self.view_low[: len(self.view_low) - self.shared]
            where = _slices(self._shared(low), self._shared(high), origin)
            yield Copy(first, first + math.prod(extent), extent, taken, lead + where)

    def _where(self, low: Numbers, high: Numbers, origin: Numbers) -> Where:
        lead = len(low) - self.shared
        fixed: Where = tuple(a - b for a, b in zip(low[:lead], origin[:lead], strict=True))
        return fixed + _slices(self._shared(low), self._shared(high), self._shared(origin))

    def _shared(self, numbers: Numbers) -> Numbers:
        return numbers[len(numbers) - self.shared :]


def _dot(numbers: Numbers, others: Numbers) -> int:
    return sum(a * b for a, b in zip(numbers, others, strict=True))


def strides(shape: Numbers) -> Numbers:
    """Elements from one to the next in each dimension, in C order."""
    return tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def boxes(shape: Numbers, begin: int, end: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Boxes, as their first elements and ends, that hold the elements `begin` to `end` in C order.

    Two at most for each dimension and one more, each of elements that lie behind each other.
    """
    if begin >= end:
        return
    if not shape:
        yield (), ()
        return
    inner = math.prod(shape[1:])
    row, row_end = -(-begin // inner), end // inner
    if row > row_end:  # Both are in one row.
        yield from _boxes_of_row(shape, row_end, begin, end)
        return
    yield from _boxes_of_row(shape, row - 1, begin, row * inner)
    if row < row_end:
        yield (row, *(0 for _ in shape[1:])), (row_end, *shape[1:])
    yield from _boxes_of_row(shape, row_end, row_end * inner, end)


def _boxes_of_row(
    shape: Numbers, row: int, begin: int, end: int
) -> Iterator[tuple[Numbers, Numbers]]:
    first = row * math.prod(shape[1:])
    for low, high in boxes(shape[1:], begin - first, end - first):
        yield (row, *low), (row + 1, *high)


def _coordinates(positions: Indices, stride: int, size: int) -> Indices:
    """In one dimension; `size` is 0 in the first, where nothing is before it."""
    at = positions // stride
    return at % size if size else at


def _slices(low: Sequence[int], high: Sequence[int], origin: Sequence[int]) -> Where:
    return tuple(slice(a - c, b - c) for a, b, c in zip(low, high, origin, strict=True))
