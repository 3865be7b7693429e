"""Ternary quantisation: the norm of a block, and -1, 0 or 1 for each element."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from sparsewire.compress.dithering import Dithering


class Ternary(Dithering):
    """Each element becomes ||x||_p sign(x) with probability |x| / ||x||_p, else 0; unbiased.

    Block p-quantisation of Mishchenko, Gorbunov, Takac, Richtarik, Distributed learning with
    compressed gradient differences, arXiv 1901.09269; with p = inf, TernGrad (Wen et al., NeurIPS
    2017) without clipping. As E||C(x)||^2 = ||x||_1 ||x||_p, omega of a block of d is 1/alpha_p(d)
    - 1 with alpha_p as there: sqrt(d) - 1 for p = 2, reached where all magnitudes are equal,
    and (sqrt(d) - 1)/2 for p = inf, reached by (1, t, t, ...) with t = 1/(1 + sqrt(d)). For other p
    it is at most d^(1/min(p, 2)) - 1: ||x||_1 <= sqrt(d) ||x||_2, and ||x||_p <= d^(1/p - 1/2)
    ||x||_2 for p <= 2, ||x||_p <= ||x||_2 above.
    """

    def __init__(
        self,
        dimension: int,
        power: float = 2.0,
        block: int | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(dimension, 1, power, block, dtype)
