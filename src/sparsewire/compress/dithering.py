"""Random dithering: the norm of a block, and for each element a signed level below it, drawn at
random so that the mean is kept."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire import _core
from sparsewire._core import first_not_finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.levels import Leveled, Levels
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.errors import CompressError

LARGEST_LEVELS = 127
_LONGEST_BLOCK = 2048
"""The longest block of which `_core` makes levels of differences in one pass."""


class NormScaled(Leveled):
    """Each element becomes the norm of its block, times its sign, times one of `levels` fractions.

    The norm is `power`, 1 to inf, of blocks of `block` elements, of the whole vector where that is
    None. Levels are drawn so that the mean is kept; `_dither` is the kernel that does it,
    `_dither_difference` does it of a difference, and `_follow` makes DIANA's step.

    A norm below the smallest normal number is raised to a multiple of the smallest number of all
    that makes every level one: what is between two numbers would be rounded, and the mean not kept.
    There the bound of omega does not hold.
    """

    _dither: ClassVar[Callable[..., None]]
    _dither_difference: ClassVar[Callable[..., bool]]
    _follow: ClassVar[Callable[..., None]]

    def __init__(
        self,
        dimension: int,
        levels: int,
        power: float = 2.0,
        block: int | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        super().__init__(dimension, levels, block, dtype)
        if not 1 <= levels <= LARGEST_LEVELS:
            raise CompressError(f"there must be 1 to {LARGEST_LEVELS} levels, not {levels}")
        if not power >= 1:
            raise CompressError(f"the norm must be 1 to inf, not {power}")
        self.power = float(power)
        self._alphabet = 2 * levels + 1

    def code_of_difference(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> Levels:
        if self.power == 2 and self.blocks.size <= _LONGEST_BLOCK:
            before = draws.place()
            norms, symbols = np.empty(self.blocks.count, x.dtype), np.empty(x.size, np.uint8)
            settings = self.blocks.size, self.levels, draws.key()
            if self._dither_difference(x, y, *settings, norms, symbols):
                return Levels(norms, symbols)
            draws.return_to(before)
        return super().code_of_difference(x, y, draws)  # type: ignore[no-any-return]

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        scales = self.blocks.norms(x, self.power)
        if first_not_finite(scales) < scales.size:
            raise CompressError(f"the norm of the vector is too large for {self.dtype}")
        scales = self._raised(scales)
        symbols = np.empty(self.dimension, np.uint8)
        self._dither(x, self.blocks.size, scales, self.levels, draws.key(), symbols)
        return Levels(scales, symbols)

    @property
    @abstractmethod
    def _fineness(self) -> float:
        """The inverse of the smallest fraction that is not zero."""

    @property
    def least_scale(self) -> Any:
        """The least norm, of `dtype`, that makes every level a number; others are its multiples."""
        return self.dtype.type(self._fineness * float(np.finfo(self.dtype).smallest_subnormal))

    def _raised(self, scales: NDArray[Any]) -> NDArray[Any]:
        """The scales with those that are subnormal rounded up, so that levels are numbers."""
        is_small = (scales > 0) & (scales < np.finfo(self.dtype).smallest_normal)
        if not is_small.any():
            return scales
        least = self.least_scale
        raised: NDArray[Any] = scales.copy()
        raised[is_small] = np.ceil(scales[is_small] / least) * least
        return raised

    def follow_codes(
        self,
        codes: Sequence[Levels],
        own: int,
        rate: float,
        shift: NDArray[Any],
        mean_shift: NDArray[Any],
        gradient: NDArray[Any],
    ) -> None:
        """DIANA's step from the codes of all ranks, of which `own` is this one's, in one pass.

        With m the mean of what they stand for, added in their order, `gradient` becomes
        `mean_shift` + m; then `mean_shift` moves by `rate` m, and `shift` by `rate` times what this
        rank sent. All are of `dtype`, shape (dimension,), contiguous.
        """
        symbols, scales = [code.symbols for code in codes], [code.scales for code in codes]
        places = shift, mean_shift, gradient
        self._follow(symbols, scales, own, self.blocks.size, self.levels, rate, *places)

    def pack(self, code: Levels) -> bytes:
        return b"".join((value_bytes(code.scales), encode_symbols(code.symbols, self._alphabet)))

    def unpack(self, reader: Reader) -> Levels:
        scales = self._read_scales(reader, "norm")
        return Levels(scales, decode_symbols(reader.rest(), self.dimension, self._alphabet))


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
    _dither_difference = staticmethod(_core.dither_difference)
    _follow = staticmethod(_core.follow_levels)
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

    def __init__(
        self, dimension: int, levels: int, span: int = 512, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, levels, 2.0, span, dtype)


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


class NaturalDithering(NormScaled):
    """Each element becomes ||x||_p sign(x) times 0, 2^(1-s), ... 1/4, 1/2 or 1; unbiased.

    `levels` is s (1 to 127), `power` p (1 to inf), by blocks. omega = 1/8 + u min(1, u), where u =
    d^(1/min(p, 2)) 2^(1-s) (Horvath et al., Natural compression for distributed deep learning,
    arXiv 1905.10988, on natural dithering): 1/8 as for `Natural`, and below the least level c =
    2^(1-s) ||x||_p an element adds at most |x| (c - |x|) to the variance.
    """

    _dither = staticmethod(_core.natural_dither)
    _dither_difference = staticmethod(_core.natural_dither_difference)
    _follow = staticmethod(_core.follow_natural_levels)
    _undither = staticmethod(_core.natural_undither)

    @property
    def _fineness(self) -> float:
        return math.ldexp(1.0, self.levels - 1)

    @property
    def omega(self) -> float:
        exponent = 1 / min(self.power, 2.0)
        u = math.ldexp(self.blocks.size**exponent, 1 - self.levels)
        return 1 / 8 + u * min(1.0, u)
