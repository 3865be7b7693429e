"""Natural dithering: magnitudes rounded at random to the norm times a power of two."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.kernels import round_to_powers
from sparsewire.compress.norm_scaled import NormScaled


class NaturalDithering(NormScaled):
    """Each element becomes ||x||_p sign(x) times 0, 2^(1-s), ... 1/4, 1/2 or 1; unbiased.

    `levels` is s (1 to 127), `power` p (1 to inf), by blocks. omega = 1/8 + u min(1, u), where u =
    d^(1/min(p, 2)) 2^(1-s) (Horvath et al., Natural compression for distributed deep learning,
    arXiv 1905.10988, on natural dithering): 1/8 as for `Natural`, and below the least level c =
    2^(1-s) ||x||_p an element adds at most |x| (c - |x|) to the variance.
    """

    @property
    def omega(self) -> float:
        exponent = 1 / min(self.power, 2.0)
        u = math.ldexp(self.blocks.size**exponent, 1 - self.levels)
        return 1 / 8 + u * min(1.0, u)

    def fractions(self) -> NDArray[np.float64]:
        return np.ldexp(1.0, np.arange(1 - self.levels, 1))

    def round(self, shares: NDArray[np.float64], key: int) -> NDArray[np.int64]:
        return round_to_powers(shares, self.levels, key)
