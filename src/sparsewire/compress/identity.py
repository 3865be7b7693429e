"""No compression at all: the operator to compare others with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.draws import Draws
from sparsewire.compress.message import Reader, value_bytes


class Identity(Compressor):
    """C(x) = x: omega is 0, and the message holds all values."""

    @property
    def omega(self) -> float:
        return 0.0

    def draw(self, x: NDArray[Any], draws: Draws) -> NDArray[Any]:
        return x

    def pack(self, code: NDArray[Any]) -> bytes:
        return bytes(value_bytes(code))

    def unpack(self, reader: Reader) -> NDArray[Any]:
        return reader.values(self.dimension, self.dtype)

    def reconstruct(self, code: NDArray[Any]) -> NDArray[Any]:
        return np.array(code)
