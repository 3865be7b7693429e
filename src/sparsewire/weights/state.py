"""A version of weights in memory, which the next one changes in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sparsewire.errors import ProtocolError
from sparsewire.weights.coding import Coder
from sparsewire.weights.fingerprint import fingerprint
from sparsewire.weights.message import Delta, TensorDelta
from sparsewire.weights.names import shown
from sparsewire.weights.safetensors import Span
from sparsewire.weights.tensors import Bytes, Tensor

Make = Callable[[int], Bytes]
"""Gives memory of so many bytes, zeros. It may raise OSError."""


class State:
    """The tensors of a version by name, writable, with the checksum of each."""

    def __init__(self, tensors: Mapping[str, Tensor], make: Make) -> None:
        """Take over `tensors`; those that are new get their memory from `make`."""
        self.tensors = dict(tensors)
        self.sums: dict[str, bytes] = {}
        self._make = make

    def sum_up(self, coder: Coder) -> None:
        """Find the checksums of all tensors."""
        found = coder.checksums(self.tensors.values())
        self.sums = dict(zip(self.tensors, found, strict=True))

    def fingerprint(self) -> bytes:
        """Of all tensors; their checksums have to be there."""
        return fingerprint(self.tensors, self.sums)

    def apply(self, delta: Delta, coder: Coder) -> None:
        """Make it the next version, whose base it is; raises ProtocolError for another one."""
        for name in delta.removed:
            self.tensors.pop(name, None)
            self.sums.pop(name, None)
        spans = delta.spans()
        for name, change in delta.tensors.items():
            coder.apply(change.codes(), self._target(name, spans[name], change))
            self.sums[name] = change.fresh
        # In the order of the files, so that the next message lists them alike.
        self.tensors = {name: self.tensors[name] for name in spans}

    def _target(self, name: str, span: Span, change: TensorDelta) -> Tensor:
        if change.is_new:
            self.tensors[name] = Tensor(span.dtype, span.shape, self.new_memory(span))
        if name not in self.tensors:
            raise ProtocolError(f"the version before has no {shown(name)}")
        return self.tensors[name]

    def new_memory(self, span: Span) -> Bytes:
        """Zeros for a new tensor. Raises OSError where there is no room."""
        return self._make(span.end - span.begin) if span.end > span.begin else _NOTHING


_NOTHING = np.empty(0, np.uint8)
