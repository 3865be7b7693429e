"""What a chunk's code says, as arrays: which elements change, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.errors import DataError, ProtocolError
from sparsewire.weights.versions.chunks import changes_of
from sparsewire.weights.versions.tensors import Bytes, Format

Bits = NDArray[np.unsignedinteger[Any]]
"""Elements as unsigned integers of their width."""

Indices = NDArray[np.int64]

_NOWHERE: Indices = np.empty(0, np.int64)
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def as_bits(data: Bytes, width: int) -> Bits:
    """The same memory, element by element of `width` bytes."""
    return data.view(_BITS[width])


Form = Literal["same", "steps", "values", "whole", "xor"]


class Changes(NamedTuple):
    """Of a chunk: elements at `positions`, which ascend. These are empty if all or none change.

    `payload` has for each element its new bits; but if `form` is "steps", by how many representable
    numbers it moves, int64; and if it is "xor", what changes its bits.
    """

    form: Form
    positions: Indices
    payload: NDArray[Any]

    @classmethod
    def of(cls, code: bytes | memoryview, count: int, element: Format) -> Changes:
        """What the code of a chunk of `count` elements says; raises ProtocolError for none."""
        found = changes_of(code, count, element.width, element.floating)
        if found is None:
            raise ProtocolError("the code of a chunk is damaged")
        form, positions, payload = found
        if form != "steps":
            payload = as_bits(payload, element.width)
        if form == "xor":
            differing = np.flatnonzero(payload)
            return cls(form, differing, payload[differing])
        return cls(form, _NOWHERE if positions is None else positions.astype(np.int64), payload)

    def over_zeros(self, count: int, element: Format) -> Changes:
        """What the chunk of a new tensor holds, since its code is over zeros: all new bits."""
        if self.form == "whole":
            return self
        zeros = np.zeros(count, _BITS[element.width])
        return _changed(Changes("whole", _NOWHERE, zeros), self, element)

    def among(self, other: Changes) -> Changes:
        """Those of elements that the other changes, too."""
        return self._where(np.isin(self.positions, other.positions))

    def apart_from(self, other: Changes) -> Changes:
        """Those of elements that the other leaves alone."""
        return self._where(~np.isin(self.positions, other.positions))

    def _where(self, chosen: NDArray[np.bool_]) -> Changes:
        return Changes(self.form, self.positions[chosen], self.payload[chosen])


def ordered(bits: Bits, *, floating: bool) -> Bits:
    """Numbers in the order of their values, so that neighbours differ by one: its own inverse.

    A new array, but for integers, which are in order.
    """
    if not floating:
        return bits
    top = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits & top, bits ^ (top - bits.dtype.type(1)), bits)


def moved(bits: Bits, steps: NDArray[np.int64], *, floating: bool) -> Bits:
    """The numbers that lie so many steps away from `bits`, modulo all that the width has."""
    there = ordered(bits, floating=floating) + steps.astype(bits.dtype)
    return ordered(there, floating=floating)


def composed(earlier: Sequence[Changes], later: Changes, element: Format) -> list[Changes]:
    """The changes of a chunk from one version to another, and then to the next, as one.

    No element is in two of them. So a chain of versions is written at once, without those between.
    """
    if later.form == "same":
        return list(earlier)
    if later.form == "whole" or not earlier:
        return [later]
    by_form = {each.form: each for each in earlier}
    if whole := by_form.get("whole"):
        return [_changed(whole, later, element)]
    if later.form == "xor" or "xor" in by_form:
        return _composed_xor(earlier, later, element)
    steps = by_form.get("steps", Changes("steps", _NOWHERE, np.empty(0, np.int64)))
    no_bits = np.empty(0, _BITS[element.width])
    values = by_form.get("values", Changes("values", _NOWHERE, no_bits))
    if later.form == "values":
        steps, values = steps.apart_from(later), _joined(values, later)
    else:
        values = _changed(values, later.among(values), element)
        steps = _joined(steps, later.apart_from(values))
    return [each for each in (steps, values) if len(each.payload)]


def _composed_xor(earlier: Sequence[Changes], later: Changes, element: Format) -> list[Changes]:
    """The same where one of them says what changes bits. Raises DataError where steps meet that."""
    found: list[Changes] = []
    # What is of the later form takes in all that is left, so it has to come last.
    for each in sorted(earlier, key=lambda each: each.form == later.form):
        both = later.among(each)
        if later.form == "values":
            found.append(each.apart_from(later))
        elif each.form == "values":
            found.append(_changed(each, both, element))
            later = later.apart_from(each)
        elif each.form == later.form:
            found.append(_joined(each, later))
            later = later.among(Changes("same", _NOWHERE, _NOWHERE))
        elif len(both.payload):
            raise DataError(
                "changes of several versions cannot be composed here: stage the version again, and "
                "it comes whole"
            )
        else:
            found.append(each)
    return [each for each in (*found, later) if len(each.payload)]


def _changed(bits: Changes, later: Changes, element: Format) -> Changes:
    """New bits after later changes, which are of elements that have new bits."""
    at, payload = later.positions, bits.payload.copy()
    if bits.form != "whole":
        at = np.searchsorted(bits.positions, at)
    if later.form == "steps":
        payload[at] = moved(payload[at], later.payload, floating=element.floating)
    elif later.form == "xor":
        payload[at] ^= later.payload
    else:
        payload[at] = later.payload
    return bits._replace(payload=payload)


def _joined(earlier: Changes, later: Changes) -> Changes:
    """Both of one form: steps add up, and the later values hold."""
    positions = np.union1d(earlier.positions, later.positions)
    payload = np.zeros(len(positions), earlier.payload.dtype)
    payload[np.searchsorted(positions, earlier.positions)] = earlier.payload
    at = np.searchsorted(positions, later.positions)
    payload[at] = _both(payload[at], later)
    return Changes(earlier.form, positions, payload)


def _both(payload: NDArray[Any], later: Changes) -> NDArray[Any]:
    ways: dict[str, Callable[..., NDArray[Any]]] = {"steps": np.add, "xor": np.bitwise_xor}
    way = ways.get(later.form)
    return way(payload, later.payload) if way else later.payload
