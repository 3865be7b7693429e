"""A version of weights in memory, which the next one changes in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sparsewire.errors import ProtocolError
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.fingerprint import fingerprint
from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.tensors import Bytes, Tensor

Make = Callable[[int], Bytes]
"""Gives memory of so many bytes, zeros. It may raise OSError."""


class State:
    """The tensors of a version by name, writable, with the checksum of each."""

    def __init__(self, tensors: Mapping[str, Tensor], make: Make) -> None:
        """Take over `tensors`; those that are new get their memory from `make`."""
        self.tensors = dict(tensors)
        self.sums: dict[str, bytes] = {}
        self._make = make

    def fingerprint(self) -> bytes:
        """Of all tensors; their checksums have to be there."""
        return fingerprint(self.tensors, self.sums)

    def room(self, delta: Delta) -> dict[str, Tensor]:
        """Zeros for the tensors that are new. Raises OSError where there is no room for them."""
        spans = delta.spans()
        return {
            name: Tensor(span.dtype, span.shape, self._zeros(span.end - span.begin))
            for name, change in delta.tensors.items()
            if change.is_new and (span := spans[name])
        }

    def _zeros(self, nbytes: int) -> Bytes:
        return self._make(nbytes) if nbytes else _NOTHING

    def apply(self, delta: Delta, coder: Coder, new: Mapping[str, Tensor]) -> None:
        """Make it the next version, whose base it is, with `room` of it for new tensors.

        Raises ProtocolError for a message of another base.
        """
        for name in delta.removed:
            self.tensors.pop(name, None)
            self.sums.pop(name, None)
        self.tensors |= new
        for name, change in delta.tensors.items():
            if name not in self.tensors:
                raise ProtocolError(f"the version before has no {shown(name)}")
            coder.apply(change.codes(), self.tensors[name])
            self.sums[name] = change.fresh
        # In the order of the files, so that the next message lists them alike.
        self.tensors = {name: self.tensors[name] for name in delta.spans()}


_NOTHING = np.empty(0, np.uint8)
