"""Numbers of four bits, a sign and an exponent, with a scale per span."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire import _core
from sparsewire.compress.draws import Draws
from sparsewire.compress.levels import Levels, PowerScaled

EXPONENTS = 7
"""Three bits of exponent, less the one that stands for zero."""


class Fp4(PowerScaled):
    """Each element becomes the nearest of zero and seven powers of two, with a sign. Biased.

    E3M0, the numbers in which Streaming DiLoCo sends (Douillard et al., arXiv 2501.18512): a sign,
    three bits of exponent, no mantissa. The largest power of a span of `span` elements is that
    which is nearest to its largest magnitude. Symbols are entropy coded.

    contraction = 8192/(9215 + d) of spans of d. An element becomes a power of two P with |x| in
    [3/4 P, 3/2 P), and 2 x P - P^2 >= 8/9 x^2 of its square is kept, where |x| is at least half the
    least power. Below that nothing is kept. Least is kept where the largest magnitude is 3/4 of the
    largest power, Q, of which 1/2 Q^2 is kept, and all others are just below Q/128. It does not
    hold where the largest magnitude is above 3/2 of the largest power of the type, or below 3/4 of
    the smallest normal number.
    """

    omega = float("inf")
    _undither = staticmethod(_core.natural_undither)

    def __init__(self, dimension: int, span: int = 512, dtype: DTypeLike = np.float32) -> None:
        super().__init__(dimension, EXPONENTS, span, dtype)

    @property
    def contraction(self) -> float:
        return 8192 / (9215 + self.blocks.size)

    @property
    def largest_safe(self) -> float:
        return float(np.finfo(self.dtype).max)

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        scales = np.empty(self.blocks.count, self.dtype)
        symbols = np.empty(self.dimension, np.uint8)
        _core.nearest_powers(x, self.blocks.size, self.levels, scales, symbols)
        return Levels(scales, symbols)
