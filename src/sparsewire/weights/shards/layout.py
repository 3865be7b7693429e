"""How a reader's tensors are made of those that trainers publish, whatever shards both have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sparsewire.errors import DataError
from sparsewire.weights.shards.changes import Changes
from sparsewire.weights.shards.places import Place
from sparsewire.weights.shards.targets import Target, Write
from sparsewire.weights.shards.views import Piece, View
from sparsewire.weights.shards.windows import Window
from sparsewire.weights.versions.names import shown


class Layout:
    """A view for each of the reader's tensors, by name."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self.views = dict(views)
        self._pieces: dict[str, list[tuple[str, Piece]]] = defaultdict(list)
        for target, view in self.views.items():
            for piece in view.pieces:
                self._pieces[piece.source].append((target, piece))

    @classmethod
    def identity(cls, weights: Mapping[str, Any]) -> Layout:
        """The reader has the trainers' tensors, under their names.

        `weights` have shapes, and those that share memory are among them once.
        """
        whole = {name: View.whole(name, tuple(each.shape)) for name, each in weights.items()}
        return cls(whole)

    @property
    def sources(self) -> frozenset[str]:
        """Names of the published tensors that the reader needs."""
        return frozenset(self._pieces)

    def check(self, targets: Mapping[str, Target]) -> None:
        """Raise DataError for a view whose tensor is not there, or has another shape."""
        for name, view in self.views.items():
            if name not in targets:
                raise DataError(f"the layout has {name}, which the model has not")
            if tuple(targets[name].shape) != view.shape:
                raise DataError(
                    f"{name} has shape {list(targets[name].shape)}, and by the layout it is {view}"
                )

    def route(self, place: Place) -> Route:
        """Where the elements of a published part go.

        Raises DataError where the layout has another shape of the full tensor.
        """
        ways = []
        for target, piece in self._pieces.get(place.name, ()):
            if piece.shape != place.shape:
                raise DataError(
                    f"{shown(place.name)} was published with shape {list(place.shape)}, and by the "
                    f"layout it has {list(piece.shape)}: correct the layout"
                )
            if window := Window.of(place, piece, self.views[target].shape):
                ways.append(Way(target, window))
        return Route(place, tuple(ways))


class Way(NamedTuple):
    """The part's elements in the window go to the target of this name."""

    target: str
    window: Window


class Route(NamedTuple):
    """Where the elements of the part at `place` go; nowhere if the reader has none of them."""

    place: Place
    ways: tuple[Way, ...]

    def writes(
        self, targets: Mapping[str, Target], dtype: str, begin: int, changes: Changes
    ) -> Iterator[Write]:
        """What to write for the changes of a chunk that begins at the part's element `begin`.

        `dtype` is the part's. Changes of a part that is new have to be `over_zeros`. Others cost
        time and memory for the changed elements only. Raises DataError for a target of another
        dtype.
        """
        for name, window in self.ways:
            target = targets[name]
            if target.dtype != dtype:
                raise DataError(
                    f"{shown(self.place.name)} was published as {dtype}, and {name} has dtype "
                    f"{target.dtype}: publish what readers have"
                )
            yield from _writes(target, window, begin, changes)


def _writes(target: Target, window: Window, begin: int, changes: Changes) -> Iterator[Write]:
    form, positions, payload = changes
    if form == "whole":
        for copy in window.copies(begin, begin + len(payload)):
            box = payload[copy.begin - begin : copy.end - begin].reshape(copy.extent)
            yield target.copying(copy.where, box[copy.taken])
    elif form != "same" and (found := window.scatter(positions + begin)):
        yield target.scattering(found.positions, form, payload[found.chosen])
