"""Operators that send a scale per block and, for each element, a signed level below it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import first_not_finite
from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.levels import Leveled, Levels
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.errors import CompressError

LARGEST_LEVELS = 127


class NormScaled(Leveled):
    """Each element becomes the norm of its block, times its sign, times one of `levels` fractions.

    The norm is `power`, 1 to inf, of blocks of `block` elements, of the whole vector where that is
    None. Levels are drawn so that the mean is kept; `_dither` is the kernel that does it.

    A norm below the smallest normal number is raised to a multiple of the smallest number of all
    that makes every level one: what is between two numbers would be rounded, and the mean not kept.
    There the bound of omega does not hold.
    """

    _dither: ClassVar[Callable[..., None]]

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

    def _raised(self, scales: NDArray[Any]) -> NDArray[Any]:
        """The scales with those that are subnormal rounded up, so that levels are numbers."""
        limits = np.finfo(self.dtype)
        is_small = (scales > 0) & (scales < limits.smallest_normal)
        if not is_small.any():
            return scales
        least = self.dtype.type(self._fineness * float(limits.smallest_subnormal))
        raised: NDArray[Any] = scales.copy()
        raised[is_small] = np.ceil(scales[is_small] / least) * least
        return raised

    def pack(self, code: Levels) -> bytes:
        return b"".join((value_bytes(code.scales), encode_symbols(code.symbols, self._alphabet)))

    def unpack(self, reader: Reader) -> Levels:
        scales = self._read_scales(reader, "norm")
        return Levels(scales, decode_symbols(reader.rest(), self.dimension, self._alphabet))
