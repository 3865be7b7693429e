"""Natural dithering: magnitudes rounded at random to the norm times a power of two."""

from __future__ import annotations

import math

from sparsewire import _core
from sparsewire.compress.norm_scaled import NormScaled


class NaturalDithering(NormScaled):
    """Each element becomes ||x||_p sign(x) times 0, 2^(1-s), ... 1/4, 1/2 or 1; unbiased.

    `levels` is s (1 to 127), `power` p (1 to inf), by blocks. omega = 1/8 + u min(1, u), where u =
    d^(1/min(p, 2)) 2^(1-s) (Horvath et al., Natural compression for distributed deep learning,
    arXiv 1905.10988, on natural dithering): 1/8 as for `Natural`, and below the least level c =
    2^(1-s) ||x||_p an element adds at most |x| (c - |x|) to the variance.
    """

    _dither = staticmethod(_core.natural_dither)
    _undither = staticmethod(_core.natural_undither)

    @property
    def _fineness(self) -> float:
        return math.ldexp(1.0, self.levels - 1)

    @property
    def omega(self) -> float:
        exponent = 1 / min(self.power, 2.0)
        u = math.ldexp(self.blocks.size**exponent, 1 - self.levels)
        return 1 / 8 + u * min(1.0, u)
