"""Operators whose code is a scale per block and a signed level for each element, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.compress.dithering import NormScaled
from sparsewire.compress.fp4 import Fp4
from sparsewire.compress.levels import Leveled, Levels, Rounded
from sparsewire.torch.operators.floats import (
    BIAS,
    LARGEST,
    MANTISSA,
    SMALLEST_NORMAL,
    is_negative,
    magnitude_bits,
    power_of_two,
    rows_of,
    vector_of,
)
from sparsewire.torch.operators.noise import noise, top_bits
from sparsewire.torch.operators.norms import largest, means, norms
from sparsewire.torch.operators.tensor_operator import (
    Arrays,
    O,
    TensorCode,
    TensorOperator,
    Values,
    is_not_finite,
    number,
)

_FIXED_POINT = 30
"""Bits of a level together with the fraction below it."""


class TensorLeveled(TensorOperator[O]):
    """The parts are scales, float32, and symbols, uint8."""

    operator: Any

    def code_of(self, arrays: Arrays, known: Any) -> Levels:
        return Levels(arrays[0], arrays[1])

    def arrays_of(self, code: Levels) -> list[NDArray[Any]]:
        return [code.scales, code.symbols]

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        scales, symbols = parts
        size = self.operator.blocks.size
        levels = rows_of(symbols, size).to(torch.int32) - self.operator.levels
        return Values(None, vector_of(self._undithered(levels, scales[:, None]), len(symbols)))

    def _undithered(self, levels: Tensor, scales: Tensor) -> Tensor:
        """The values of levels, int32, with the scales of their rows."""
        return levels.float() / number(self.operator.levels, scales) * scales

    def _symbols(self, x: Tensor, levels: Tensor) -> Tensor:
        """Symbols of a message, from unsigned `levels`, int32, in rows, and the signs of `x`."""
        unsigned = vector_of(levels, len(x))
        signed = torch.where(is_negative(x) == 1, -unsigned, unsigned)
        symbols: Tensor = signed + self.operator.levels
        return symbols.to(torch.uint8)


class TensorSign(TensorLeveled[Leveled]):
    """`Sign` on tensors."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        symbols = (x.sign() + 1).to(torch.uint8)
        return TensorCode([means(x, self.operator.blocks), symbols], is_not_finite(x))


class TensorRounded(TensorLeveled[Rounded]):
    """`Rounded` on tensors."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        rows, levels = rows_of(x, self.operator.blocks.size), self.operator.levels
        steps = self._steps(magnitude_bits(largest(rows)))
        most = number(LARGEST, steps) / steps
        top = most.clamp(max=float(levels)).trunc()[:, None]
        nearest = torch.minimum(torch.maximum(rows / steps[:, None], -top), top).round()
        symbols = vector_of(nearest, len(x)).to(torch.int32) + levels
        return TensorCode([steps, symbols.to(torch.uint8)], is_not_finite(x))

    def _steps(self, tops: Tensor) -> Tensor:
        """The least steps, powers of two, with which levels reach magnitudes of these bits."""
        bits = int(self.operator.levels).bit_count()
        # A magnitude at most half a step below the next power of two would be rounded up to it, to
        # a level too many. So it gets the next larger step.
        carried = tops + (1 << (MANTISSA - bits))
        powers = (carried >> MANTISSA) - BIAS + 1 - bits
        return power_of_two(powers.clamp(1 - BIAS, BIAS))

    def _undithered(self, levels: Tensor, scales: Tensor) -> Tensor:
        return levels.float() * scales


class TensorFp4(TensorLeveled[Fp4]):
    """`Fp4` on tensors; levels are those of natural dithering."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        rows = rows_of(x, self.operator.blocks.size)
        powers = nearest_exponents(magnitude_bits(largest(rows))) - BIAS
        scales = power_of_two(powers.clamp(1 - BIAS, BIAS))
        ratios = rows.abs() / scales[:, None]
        top = self.operator.levels
        near = (nearest_exponents(magnitude_bits(ratios)) - BIAS + top).clamp(1, top)
        levels = torch.where(ratios < 2.0**-top, 0, near)
        return TensorCode([scales, self._symbols(x, levels)], is_not_finite(x))

    def _undithered(self, levels: Tensor, scales: Tensor) -> Tensor:
        return signed_powers(levels, self.operator.levels) * scales


class TensorDithering(TensorLeveled[NormScaled]):
    """`Dithering` and its subclasses on tensors."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        operator = self.operator
        scales = norms(x, operator.blocks, operator.power)
        is_refused = is_not_finite(x) | is_not_finite(scales)
        scales = self._raised(scales)
        rows = rows_of(x, operator.blocks.size)
        ratios = (rows.abs() / scales[:, None]).clamp(max=1.0)
        random = rows_of(noise(draws.key(), len(x), x.device), operator.blocks.size)
        levels = torch.where(scales[:, None] > 0, self._levels(ratios, random), 0)
        return TensorCode([scales, self._symbols(x, levels)], is_refused)

    def _raised(self, scales: Tensor) -> Tensor:
        """The scales; subnormal ones are rounded up, so that levels are numbers."""
        least = number(self.operator.least_scale, scales)
        raised = (scales / least).ceil() * least
        return torch.where((scales > 0) & (scales < SMALLEST_NORMAL), raised, scales)

    def _levels(self, ratios: Tensor, random: Tensor) -> Tensor:
        """Levels of `ratios`: noise below one level is added, and the fraction dropped."""
        fraction: int = _FIXED_POINT - (self.operator.levels - 1).bit_length()
        sizes = (ratios * float(self.operator.levels << fraction)).to(torch.int32)
        return (sizes + top_bits(random, fraction)) >> fraction


class TensorNaturalDithering(TensorDithering):
    """`NaturalDithering` on tensors."""

    def _levels(self, ratios: Tensor, random: Tensor) -> Tensor:
        """Levels of `ratios`: noise carries into the exponent as often as the mantissa requires."""
        top = self.operator.levels
        carried = magnitude_bits(ratios) + top_bits(random, MANTISSA)
        powers = (carried >> MANTISSA) - BIAS + top
        # Below the smallest level that is not zero, rounding is linear between zero and this level.
        scaled = (ratios * 2.0 ** (top - 1)).clamp(max=1.0)
        parts = (scaled * float(1 << _FIXED_POINT)).to(torch.int32)
        linear = (parts + top_bits(random, _FIXED_POINT)) >> _FIXED_POINT
        return torch.where(ratios < 2.0 ** (1 - top), linear, powers)

    def _undithered(self, levels: Tensor, scales: Tensor) -> Tensor:
        return signed_powers(levels, self.operator.levels) * scales


def nearest_exponents(sizes: Tensor) -> Tensor:
    """Exponents of the powers of two nearest to magnitudes, int32 bits, as float32 stores them."""
    return (sizes + (1 << (MANTISSA - 1))) >> MANTISSA


def signed_powers(levels: Tensor, top: int) -> Tensor:
    """The levels of natural dithering: zero, or 2^(|level| - top) with a sign; float32."""
    powers = power_of_two(levels.abs() - top)
    return torch.where(levels == 0, 0.0, torch.where(levels < 0, -powers, powers))
