"""The window from a published part to a view: which of the part's elements a piece takes, and where
they go. Elements of both are counted in C order, as they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sparsewire.weights.changes import Indices
from sparsewire.weights.places import Place
from sparsewire.weights.views import Numbers, Piece

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
        first = sum(a * b for a, b in zip(self.low, own, strict=True))
        last = sum((a - 1) * b for a, b in zip(self.high, own, strict=True))
        begin, end = np.searchsorted(positions, (first, last + 1))
        if begin == end:
            return None
        inside, moved = self._moved(positions[begin:end], own)
        if inside is None:
            return Scatter(moved, slice(int(begin), int(end)))
        return Scatter(moved[inside], begin + np.flatnonzero(inside)) if inside.any() else None

    def _moved(
        self, positions: Indices, own: Numbers
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]] | None, Indices]:
        """Whether each position, from the first of the window to the last, is inside, which None
        says of all; and where it goes, if it is."""
        inside = None
        theirs = (0,) * (len(own) - self.shared) + self._shared(self.view_strides)
        moved = positions + self._shift(theirs)
        is_spread = False
        for dimension, (low, high, size) in enumerate(
            zip(self.low, self.high, self.extent, strict=True)
        ):
            bend = theirs[dimension] - own[dimension]
            # Up to the first dimension with several elements, first and last bound them.
            is_open = is_spread and high - low < size
            if high - low == 1 and not is_open:
                moved += low * bend
            elif bend or is_open:
                at = _coordinates(positions, own[dimension], size if dimension else 0)
                moved += at * bend
                if is_open:
                    among = (at >= low) & (at < high)
                    inside = among if inside is None else inside & among
            is_spread |= high - low > 1
        return inside, moved

    def _shift(self, theirs: Numbers) -> int:
        """What brings the window's first element to its place, once all coordinates are counted."""
        there = sum(a * b for a, b in zip(self.view_low, self.view_strides, strict=True))
        return there - sum(a * b for a, b in zip(self.low, theirs, strict=True))

    def copies(self, begin: int, end: int) -> Iterator[Copy]:
        """Boxes that cover what of the part's elements `begin` to `end` is in the window."""
        own = strides(self.extent)
        for box_low, box_high in boxes(self.extent, begin, end):
            low = tuple(map(max, self.low, box_low))
            high = tuple(map(min, self.high, box_high))
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            first = sum(a * b for a, b in zip(box_low, own, strict=True))
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
