"""What a reader's tensor is made of: boxes of published tensors, each at its place.

A view is built as one would build the tensor itself, from whole tensors that are cut, put side by
side and stacked; but it holds no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparsewire.errors import DataError

Numbers = tuple[int, ...]


class Piece(NamedTuple):
    """A box of the tensor `source`, of full `shape`, and where it begins in the view.

    `extent` is of the last dimensions, which both have. In those before, of which each may have its
    own, the box is one element thick.
    """

    source: str
    shape: Numbers
    source_begin: Numbers
    view_begin: Numbers
    extent: Numbers

    def placed(self, view_begin: Numbers) -> Piece:
        return self._replace(view_begin=view_begin)


@dataclass(frozen=True)
class View:
    """A tensor of `shape`, made of pieces that do not overlap; what none has stays as it is."""

    shape: Numbers
    pieces: tuple[Piece, ...]

    @classmethod
    def whole(cls, source: str, shape: Sequence[int]) -> View:
        """The published tensor of this name and full shape."""
        shape, zeros = tuple(shape), (0,) * len(shape)
        return cls(shape, (Piece(source, shape, zeros, zeros, shape),))

    def narrow(self, dimension: int, begin: int, end: int) -> View:
        """Elements from `begin` to `end` of one dimension. Raises DataError."""
        size = self._size(dimension)
        if not 0 <= begin <= end <= size:
            raise DataError(f"{self} has no elements {begin} to {end} in dimension {dimension}")
        pieces = (_narrowed(each, dimension, begin, end) for each in self.pieces)
        shape = _with(self.shape, dimension, end - begin)
        return View(shape, tuple(each for each in pieces if each))

    def shard(self, dimension: int, rank: int, ranks: int) -> View:
        """The share of one rank of a dimension that divides evenly. Raises DataError."""
        size = self._size(dimension)
        if not 0 <= rank < ranks or size % ranks:
            raise DataError(
                f"{self} does not divide into {ranks} equal shards of dimension {dimension}, of "
                f"which {rank} is one: pad the dimension, or use narrow()"
            )
        step = size // ranks
        return self.narrow(dimension, rank * step, (rank + 1) * step)

    def pad(self, dimension: int, size: int) -> View:
        """Longer in one dimension, by elements at the end that nobody publishes.

        Raises DataError where it is longer already.
        """
        if size < self._size(dimension):
            raise DataError(f"{self} has more than {size} elements in dimension {dimension}")
        return View(_with(self.shape, dimension, size), self.pieces)

    def select(self, index: int) -> View:
        """One element of the first dimension, without that dimension. Raises DataError."""
        row = self.narrow(0, index, index + 1)
        return View(row.shape[1:], tuple(map(_without_first, row.pieces)))

    def _size(self, dimension: int) -> int:
        if not 0 <= dimension < len(self.shape):
            raise DataError(f"{self} has no dimension {dimension}")
        return self.shape[dimension]

    def __str__(self) -> str:
        sources = ", ".join(dict.fromkeys(each.source for each in self.pieces))
        return f"a view of {sources or 'nothing'} with shape {list(self.shape)}"


def concatenated(views: Sequence[View], dimension: int = 0) -> View:
    """Views side by side along a dimension; raises DataError where they do not fit together."""
    first, begin = views[0], 0
    pieces: list[Piece] = []
    for view in views:
        size = view._size(dimension)
        if view.shape != _with(first.shape, dimension, size):
            raise DataError(f"{view} does not fit beside {first} along dimension {dimension}")
        pieces += [_shifted(each, dimension, begin) for each in view.pieces]
        begin += size
    return View(_with(first.shape, dimension, begin), tuple(pieces))


def stacked(views: Sequence[View]) -> View:
    """Views of one shape along a new first dimension; raises DataError for other shapes."""
    for view in views:
        if view.shape != views[0].shape:
            raise DataError(f"{view} cannot be stacked on {views[0]}, which has another shape")
    pieces = [
        each.placed((index, *each.view_begin))
        for index, view in enumerate(views)
        for each in view.pieces
    ]
    return View((len(views), *views[0].shape), tuple(pieces))


def _with(numbers: Numbers, dimension: int, value: int) -> Numbers:
    return (*numbers[:dimension], value, *numbers[dimension + 1 :])


def _shifted(piece: Piece, dimension: int, by: int) -> Piece:
    begin = piece.view_begin
    return piece.placed(_with(begin, dimension, begin[dimension] + by))


def _narrowed(piece: Piece, dimension: int, begin: int, end: int) -> Piece | None:
    """What of the piece lies between `begin` and `end` of a dimension of its view."""
    place = piece.view_begin[dimension]
    # The dimension among those that source and view both have; negative for one before these.
    shared = dimension - len(piece.view_begin) + len(piece.extent)
    size = piece.extent[shared] if shared >= 0 else 1
    low, high = max(begin - place, 0), min(end - place, size)
    if low >= high and not (size == 0 and begin <= place <= end):
        return None
    placed = piece.placed(_with(piece.view_begin, dimension, place + low - begin))
    if shared < 0:
        return placed
    own = shared + len(piece.source_begin) - len(piece.extent)
    return placed._replace(
        source_begin=_with(piece.source_begin, own, piece.source_begin[own] + low),
        extent=_with(piece.extent, shared, high - low),
    )


def _without_first(piece: Piece) -> Piece:
    """The piece in a view without its first dimension, in which the piece has one element."""
    is_shared = len(piece.extent) == len(piece.view_begin)
    extent = piece.extent[1:] if is_shared else piece.extent
    return piece._replace(view_begin=piece.view_begin[1:], extent=extent)
