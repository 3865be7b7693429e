"""Scaled sign: the mean magnitude of a block, and the sign of each element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sparsewire._core import take_signs, undither
from sparsewire.compress.draws import Draws
from sparsewire.compress.entropy_code import decode_symbols, encode_symbols
from sparsewire.compress.levels import Leveled, Levels
from sparsewire.compress.message import Reader, value_bytes
from sparsewire.errors import CompressError

_WITHOUT_ZERO, _WITH_ZERO = 2, 3
_ZERO = 1


class Sign(Leveled):
    """Each element becomes mean |x| sign(x), by blocks of `block` elements. Biased.

    contraction = 1/d of a block of d, as a vector with a single element reaches for large d; of a
    vector x it is ||x||_1^2 / (d ||x||^2) (Karimireddy et al., Error feedback fixes SignSGD, ICML
    2019, lemma 8). Zeros stay zero, which makes the error no larger.

    The code is that of one level, with means in place of norms.
    """

    omega = float("inf")
    _undither = staticmethod(undither)

    def __init__(
        self, dimension: int, block: int | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        super().__init__(dimension, 1, block, dtype)

    @property
    def contraction(self) -> float:
        return 1 / self.blocks.size

    def draw(self, x: NDArray[Any], draws: Draws) -> Levels:
        symbols = np.empty(self.dimension, np.uint8)
        take_signs(x, symbols)
        return Levels(self.blocks.means(x), symbols)

    def pack(self, code: Levels) -> bytes:
        # Without zeros, which is the rule, there are only two symbols.
        alphabet = _WITH_ZERO if (code.symbols == _ZERO).any() else _WITHOUT_ZERO
        symbols = code.symbols if alphabet == _WITH_ZERO else code.symbols // np.uint8(2)
        coded = encode_symbols(symbols, alphabet)
        return b"".join((bytes([alphabet]), value_bytes(code.scales), coded))

    def unpack(self, reader: Reader) -> Levels:
        alphabet = reader.view(1)[0]
        if alphabet not in (_WITHOUT_ZERO, _WITH_ZERO):
            raise CompressError(f"malformed message: there are no {alphabet} signs")
        means = self._read_scales(reader, "mean magnitude")
        symbols = decode_symbols(reader.rest(), self.dimension, alphabet)
        return Levels(means, symbols if alphabet == _WITH_ZERO else symbols * np.uint8(2))
