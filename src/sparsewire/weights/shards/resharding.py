"""Versions brought to a reader's own tensors, which are made of the published ones by a layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import DataError
from sparsewire.weights.shards.changes import Changes, as_bits, composed
from sparsewire.weights.shards.layout import Layout, Route
from sparsewire.weights.shards.on_device import DeviceTarget
from sparsewire.weights.shards.places import Place, check_complete
from sparsewire.weights.shards.targets import HostTarget, Target, Write
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.fingerprint import Described
from sparsewire.weights.versions.message import Delta, tensor_changes
from sparsewire.weights.versions.named import aliases_among, items_of, place_of, tensor_of
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.tensors import FORMATS, Tensor

_BYTE_BITS = 8


class Resharding:
    """A reader's weights, a module or a mapping, and the layout by which they are made.

    Published tensors may be whole, or parts under the keys of their places, of any number of
    publishers. Nothing is kept beside the weights.
    """

    def __init__(self, layout: Layout, weights: Any) -> None:
        """Raises InputError for weights that cannot be written in place, DataError for a layout of
        others."""
        self._layout = layout
        self._targets = targets_of(weights, layout.views)
        layout.check(self._targets)

    def check(
        self, published: Mapping[str, Described], aliases: Mapping[str, str] | None = None
    ) -> None:
        """Raise DataError unless these tensors, of all publishers, hold all that the layout needs.

        `aliases` are second names of published tensors, as a `Delta` has them. Parts must make up
        their tensors: each element is in exactly one.
        """
        places = [
            Place.parse(name, each.shape)
            for key, each in published.items()
            for name in _names(key, aliases or {})
        ]
        needed = [place for place in places if place.name in self._layout.sources]
        if missing := self._layout.sources - {place.name for place in needed}:
            raise DataError(f"nobody publishes {min(missing)}, which the layout needs")
        check_complete(needed)

    def changes(self, deltas: Sequence[Delta], coder: Coder) -> list[Write]:
        """What to write for messages, each the base of the next, over the version that is here.

        That it is the first one's base is the caller's to know: slices have no checksums. It runs
        beside the reader's work, on all processors, and costs time and memory for what changed.
        The new bits are absolute then, and each element is written once. Raises ProtocolError for
        a damaged code, DataError where layout and messages do not fit.
        """
        work = coder.ahead(self._writes, self._chunks(deltas))
        return [write for found in work for write in found]

    def everything(
        self, tensors: Mapping[str, Tensor], aliases: Mapping[str, str] | None = None
    ) -> Iterator[Write]:
        """What to write for a whole version, chunk by chunk; `aliases` are second names of tensors.

        Raises DataError like `changes`.
        """
        for key, tensor in tensors.items():
            routes = self._routes(key, tensor, aliases or {})
            for number, data in enumerate(tensor.chunks()):
                bits = as_bits(data, tensor.format.width)
                whole = Changes("whole", np.empty(0, np.int64), bits)
                yield from self._route(routes, tensor.dtype, number, [whole])

    def _chunks(self, deltas: Sequence[Delta]) -> Iterator[_Chunk]:
        """The chunks that change, and that the reader needs something of."""
        for key, span in deltas[-1].spans().items():
            found = tensor_changes(key, deltas)
            routes = self._routes(key, span, deltas[-1].aliases)
            if not found or not routes:
                continue
            elements = math.prod(span.shape)
            for number, codes in enumerate(zip(*(each.codes() for each in found), strict=True)):
                count = min(DELTA_CHUNK, elements - number * DELTA_CHUNK)
                yield _Chunk(routes, span.dtype, number, count, codes, found[0].is_new)

    def _routes(self, key: str, part: Described, aliases: Mapping[str, str]) -> list[Route]:
        """Those that lead somewhere, of the part's key and its other names."""
        places = [Place.parse(name, part.shape) for name in _names(key, aliases)]
        routes = [route for place in places if (route := self._layout.route(place)).ways]
        if routes and FORMATS[part.dtype].bits < _BYTE_BITS:
            raise DataError(
                f"{shown(key)} has dtype {part.dtype}, of which several elements share a byte, so "
                "that a layout cannot cut it: publish its bytes, as U8"
            )
        return routes

    def _writes(self, chunk: _Chunk) -> list[Write]:
        return list(self._route(chunk.routes, chunk.dtype, chunk.number, chunk.changes()))

    def _route(
        self, routes: Iterable[Route], dtype: str, number: int, changes: Iterable[Changes]
    ) -> Iterator[Write]:
        for each in changes:
            for route in routes:
                yield from route.writes(self._targets, dtype, number * DELTA_CHUNK, each)


class _Chunk(NamedTuple):
    """One chunk of a published part of `elements`, and its codes in all messages."""

    routes: list[Route]
    dtype: str
    number: int
    elements: int
    codes: tuple[memoryview, ...]
    is_new: bool

    def changes(self) -> list[Changes]:
        """What they all come to. Raises ProtocolError."""
        element = FORMATS[self.dtype]
        found: list[Changes] = []
        for number, code in enumerate(self.codes):
            changes = Changes.of(code, self.elements, element)
            if self.is_new and number == 0:
                changes = changes.over_zeros(self.elements, element)
            found = composed(found, changes, element)
        return found


def _names(key: str, aliases: Mapping[str, str]) -> list[str]:
    return [key, *(alias for alias, of in aliases.items() if of == key)]


def targets_of(weights: Any, names: Iterable[str]) -> dict[str, Target]:
    """Those of the weights, a module or a mapping, that have these names, to write to.

    Raises InputError for one that cannot be written in place, and DataError for two names of one
    memory, which would be written twice.
    """
    own = dict(items_of(weights))
    chosen = {name: own[name] for name in names if name in own}
    for alias, first in aliases_among(chosen).items():
        raise DataError(f"{alias} and {first} are one tensor: leave one of them out of the layout")
    return {name: _target_of(name, value) for name, value in chosen.items()}


def _target_of(name: str, value: Any) -> Target:
    if getattr(getattr(value, "device", None), "type", "cpu") == "cpu":
        return HostTarget(place_of(name, value))
    return DeviceTarget(tensor_of(name, value.detach().flatten()[:0]).dtype, value)
