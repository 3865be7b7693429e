"""Where a part lies in a full tensor, and how a message names it.

Ranks that hold shards of a model publish their own parts. A part's name is its key, such as
`layers.0.w[0:512/1024,0:4096]`: in each dimension begin and end, and the full size unless the end
is it. A whole tensor's key is its name, but for a name that ends in a bracket.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsewire.errors import DataError
from sparsewire.weights.versions.names import shown

# As in files of safetensors.
DIMENSIONS_MAX = 64
_ELEMENTS_MAX = 2**62
_SHOWN_CHARS = 200
_RANGE = re.compile(r"(\d{1,19}):(\d{1,19})(?:/(\d{1,19}))?", re.ASCII)
_RANGES_CHARS_MAX = DIMENSIONS_MAX * len("/,:" + 3 * "9" * 19)


class Place(NamedTuple):
    """A box in the tensor `name` of full `shape`: elements from `begin` to `end` per dimension."""

    name: str
    shape: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @classmethod
    def whole(cls, name: str, shape: Sequence[int]) -> Place:
        """The whole tensor."""
        return cls(name, tuple(shape), (0,) * len(shape), tuple(shape))

    @classmethod
    def parse(cls, key: str, extent: Sequence[int]) -> Place:
        """The place with this key, of a part with the shape `extent`.

        Raises DataError for what `key` has not made, and for another shape than the key's.
        """
        place = _parsed(key) if key.endswith("]") else cls.whole(key, extent)
        place.check()
        if place.key != key or place.extent != tuple(extent):
            raise DataError(f"{_short(key)} is no key of a part with shape {list(extent)}")
        return place

    @property
    def extent(self) -> tuple[int, ...]:
        """The part's own shape."""
        return tuple(end - begin for begin, end in zip(self.begin, self.end, strict=True))

    @property
    def elements(self) -> int:
        return math.prod(self.extent)

    @property
    def is_whole(self) -> bool:
        return self.extent == self.shape

    @property
    def key(self) -> str:
        """The part's name in a message; `parse` reads it."""
        if self.is_whole and not self.name.endswith("]"):
            return self.name
        ranges = zip(self.begin, self.end, self.shape, strict=True)
        return f"{self.name}[{','.join(_range(*each) for each in ranges)}]"

    def check(self) -> None:
        """Raise DataError unless the box lies in the tensor, whose size has a bound."""
        if not len(self.shape) == len(self.begin) == len(self.end) <= DIMENSIONS_MAX:
            raise DataError(
                f"{_short(self.name)}: shape {list(self.shape)}, begin {list(self.begin)} and end "
                f"{list(self.end)} differ in dimensions, or are more than {DIMENSIONS_MAX}"
            )
        ranges = zip(self.begin, self.end, self.shape, strict=True)
        if not all(0 <= begin <= end <= size for begin, end, size in ranges):
            raise DataError(
                f"{_short(self.name)}: a part from {list(self.begin)} to {list(self.end)} is not "
                f"in a tensor of shape {list(self.shape)}"
            )
        if math.prod(self.shape) > _ELEMENTS_MAX:
            raise DataError(f"{_short(self.name)} has too many elements: {list(self.shape)}")


def check_complete(places: Iterable[Place]) -> None:
    """Raise DataError unless parts make up their tensors: each element is in exactly one of them.

    Time grows with the square of a tensor's parts, of which there are about as many as ranks.
    """
    by_name: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        by_name[place.name].append(place)
    for name, own in by_name.items():
        shapes = sorted({place.shape for place in own})
        if len(shapes) > 1:
            raise DataError(f"parts of {_short(name)} tell of several shapes: {shapes}")
        if overlap := _overlap(own):
            both = " and ".join(_short(place.key) for place in overlap)
            raise DataError(f"two parts have the same elements: {both}")
        missing = math.prod(shapes[0]) - sum(place.elements for place in own)
        if missing:
            raise DataError(
                f"{missing} elements of {_short(name)} are in no part: is a rank missing?"
            )


def _overlap(places: list[Place]) -> tuple[Place, Place] | None:
    """Two places that have an element in common."""
    held = [place for place in places if place.elements]
    begin = np.array([place.begin for place in held], np.int64)
    end = np.array([place.end for place in held], np.int64)
    for index, place in enumerate(held[:-1]):
        later = slice(index + 1, None)
        meets = ((begin[later] < end[index]) & (begin[index] < end[later])).all(axis=1)
        if meets.any():
            return place, held[index + 1 + int(meets.argmax())]
    return None


def _short(name: str) -> str:
    """A name from outside, as a message shows it."""
    return shown(name[:_SHOWN_CHARS])


def _range(begin: int, end: int, size: int) -> str:
    return f"{begin}:{end}" if end == size else f"{begin}:{end}/{size}"


def _parsed(key: str) -> Place:
    name, bracket, ranges = key[:-1].rpartition("[")
    parts = ranges.split(",") if ranges and len(ranges) <= _RANGES_CHARS_MAX else []
    found = [match for part in parts if (match := _RANGE.fullmatch(part))]
    if not bracket or len(found) != len(parts) or bool(ranges) != bool(parts):
        raise DataError(
            f"{_short(key)} is no key of a part: it ends in ']', and has no ranges before, such as "
            "in w[0:512/1024,0:64]"
        )
    begin, end = (tuple(int(match[group]) for match in found) for group in (1, 2))
    shape = tuple(int(match[3] or match[2]) for match in found)
    return Place(name, shape, begin, end)


class Part(NamedTuple):
    """A part of a tensor, and where it lies. `data` is a tensor or an array of that extent."""

    place: Place
    data: Any

    @property
    def item(self) -> tuple[str, Any]:
        """The pair to publish: the part's key, and its data."""
        return self.place.key, self.data


def part(name: str, data: Any, full_shape: Sequence[int], begin: Sequence[int]) -> Part:
    """The part of the tensor `name` that `data` holds, from the element at `begin` on.

    Raises DataError if it does not lie in a tensor of `full_shape`.
    """
    if len(begin) != len(data.shape):
        raise DataError(
            f"{name}: a part of shape {list(data.shape)} cannot begin at {list(begin)}: give a "
            "begin for each of its dimensions"
        )
    end = tuple(first + size for first, size in zip(begin, data.shape, strict=True))
    place = Place(name, tuple(full_shape), tuple(begin), end)
    place.check()
    return Part(place, data)
