"""Random dithering: magnitudes rounded at random to multiples of a fraction of the norm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from sparsewire import _core
from sparsewire.compress.norm_scaled import NormScaled
from sparsewire.moved import renamed


class Dithering(NormScaled):
    """Each element becomes ||x||_q sign(x) l/s, with l of 0, 1, ... s; unbiased.

    `levels` is s (1 to 127), `power` q (1 to inf), by blocks of `block` elements; omega is that of
    a whole block. With l2 norms and blocks it is QSGD (Alistarh et al., QSGD: Communication-
    efficient SGD via gradient quantization and encoding, NeurIPS 2017, section 3.1).

    With t = s |x| / ||x||_q, an element adds f (1 - f) (||x||_q / s)^2 to the variance, where f is
    the fraction of t. That is at most t - t^2 for t <= 1/2 and at most 1/4 otherwise, a concave
    function of t^2, so that equal elements are the worst; for q = inf, all but the largest. Hence,
    sharper than QSGD's min(d/s^2, sqrt(d)/s) (lemma 3.1):

    - q = 2: sqrt(d)/s - 1 where d >= 4 s^2 or s = 1, reached by equal elements; else d/(4 s^2);
    - q = inf: (sqrt(1 + (d - 1)/s^2) - 1)/2, reached by (1, t, t, ...), t = 1/(s + sqrt(s^2+d-1));
    - other q: min(D^2/(4 s^2), D/s), where D = d^(1/min(q, 2)); D - 1 where s = 1, as then
      E||C(x)||^2 = ||x||_1 ||x||_q <= D ||x||^2, reached by equal elements for q <= 2.
    """

    _dither = staticmethod(_core.dither)
    _undither = staticmethod(_core.undither)

    @property
    def _fineness(self) -> float:
        return float(self.levels)

    @property
    def omega(self) -> float:
        d, s = self.blocks.size, self.levels
        if math.isinf(self.power):
            return (math.sqrt(1 + (d - 1) / s**2) - 1) / 2
        if self.power != 2:
            ratio: float = d ** (1 / min(self.power, 2.0)) / s
            return ratio - 1 if s == 1 else min(ratio**2 / 4, ratio)
        is_coarse = d >= 4 * s**2 or s == 1
        return math.sqrt(d) / s - 1 if is_coarse else d / (4 * s**2)


class QSGD(Dithering):
    """l2 dithering by spans of 512 elements (Alistarh et al., NeurIPS 2017, section 4)."""

    @renamed(bucket="span")
    def __init__(
        self, dimension: int, levels: int, span: int = 512, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, levels, 2.0, span, dtype)
