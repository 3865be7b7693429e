"""Natural compression on tensors: magnitudes rounded at random to a power of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.compress import Natural
from sparsewire.compress.natural import Powers
from sparsewire.torch.operators.floats import MANTISSA, is_negative, magnitude_bits
from sparsewire.torch.operators.noise import noise, top_bits
from sparsewire.torch.operators.tensor_operator import (
    Arrays,
    TensorCode,
    TensorOperator,
    Values,
    is_not_finite,
)

_INFINITY = 255


class TensorNatural(TensorOperator[Natural]):
    """The parts are symbols of one or two bytes, and the base to be added to them, int32."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        random = top_bits(noise(draws.key(), len(x), x.device), MANTISSA)
        exponents = (magnitude_bits(x) + random) >> MANTISSA
        symbols = torch.where(exponents == 0, 0, 2 * exponents + is_negative(x)).to(torch.int16)
        base = torch.zeros(1, dtype=torch.int32, device=x.device)
        return TensorCode([symbols, base], is_not_finite(x) | (exponents >= _INFINITY).any())

    def code_of(self, arrays: Arrays, known: Any) -> Powers:
        symbols: NDArray[Any] = arrays[0].view(np.uint16)
        return Powers(symbols, int(arrays[1][0]))

    def arrays_of(self, code: Powers) -> list[NDArray[Any]]:
        symbols = code.symbols
        # Symbols have at most 9 bits, so int16 holds them; torch has few operations for uint16.
        narrow = symbols if symbols.itemsize == 1 else symbols.view(np.int16)
        return [narrow, np.array([code.base], np.int32)]

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        symbols, base = parts[0].to(torch.int32), parts[1]
        codes = torch.where(symbols == 0, 0, symbols + base)
        return Values(None, ((codes >> 1) << MANTISSA | codes << 31).view(torch.float32))
