"""A reader's tensors as what a new version is written to, in two steps: all that can be computed
before comes first, so that the pause, in which bits are written, is short.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sparsewire.weights.shards.changes import Bits, Indices, as_bits, moved
from sparsewire.weights.shards.windows import Where
from sparsewire.weights.versions.tensors import Tensor

Scattered = Literal["steps", "values", "xor"]
"""Forms of `Changes` that name the elements one by one."""


class Write(Protocol):
    """Bits that are ready, and where they go. To write them twice is to write them once."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that wait with it."""

    def write(self) -> None:
        """Write them."""


class Target(Protocol):
    """A tensor to write to, of a dtype by the name that safetensors gives it.

    Steps are from the bits that it has when `scattering` is called.
    """

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def scattering(self, positions: Indices, form: Scattered, payload: NDArray[Any]) -> Write:
        """Change elements at distinct positions, as `Changes` has them."""

    def copying(self, where: Where, bits: Bits) -> Write:
        """Give a box of elements new bits."""


class HostTarget(NamedTuple):
    """A tensor in host memory. Its data can be written to."""

    tensor: Tensor

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def scattering(self, positions: Indices, form: Scattered, payload: NDArray[Any]) -> Write:
        bits, element = self._bits(), self.tensor.format
        if form == "steps":
            payload = moved(bits[positions], payload, floating=element.floating)
        elif form == "xor":
            payload = bits[positions] ^ payload
        return HostWrite(bits, positions, payload)

    def copying(self, where: Where, bits: Bits) -> Write:
        return HostWrite(self._bits().reshape(self.shape), where, bits)

    def _bits(self) -> Bits:
        return as_bits(self.tensor.data, self.tensor.format.width)


class HostWrite(NamedTuple):
    """`bits` for elements of `memory`, at positions or in a box."""

    memory: Bits
    where: Indices | Where
    bits: Bits

    @property
    def nbytes(self) -> int:
        positions = self.where.nbytes if isinstance(self.where, np.ndarray) else 0
        return self.bits.nbytes + positions

    def write(self) -> None:
        self.memory[self.where] = self.bits
