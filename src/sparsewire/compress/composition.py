"""Two operators one after the other: of the vector, or of the elements that the first one keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor
from sparsewire.compress.contractive import Contractive
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marked
from sparsewire.compress.message import Reader
from sparsewire.compress.sparsifier import Choice, Kept, Sparsifier, Unscaled
from sparsewire.errors import CompressError


class Composition(Compressor):
    """outer(inner(x)), drawn independently; the message is that of `outer`.

    omega = (omega_outer + 1) (omega_inner + 1) - 1, since E||outer(inner(x))||^2 <= (omega_outer +
    1) E||inner(x)||^2 (Horvath et al., Natural compression for distributed deep learning, arXiv
    1905.10988).

    Where `inner` is biased and `outer` is b Q, with Q unbiased and b = 1/(omega_Q + 1), contraction
    = b a_inner: with y = inner(x), E||b Q(y) - x||^2 <= b ||y||^2 - 2b <y, x> + ||x||^2 = b ||y -
    x||^2 + (1 - b) ||x||^2, and E||y - x||^2 <= (1 - a_inner) ||x||^2. With y = x it is the bound
    of `Contractive`. Otherwise nothing is known of the contraction.
    """

    def __init__(self, outer: Compressor, inner: Compressor) -> None:
        super().__init__(inner.dimension, inner.dtype)
        _check_fit(outer, inner, inner.dimension)
        self.outer = outer
        self.inner = inner

    @property
    def omega(self) -> float:
        return (self.outer.omega + 1) * (self.inner.omega + 1) - 1

    @property
    def contraction(self) -> float:
        if not self.is_biased:
            return super().contraction
        known = self.inner.is_biased and _is_scaled(self.outer)
        return self.outer.contraction * self.inner.contraction if known else 0.0

    def draw(self, x: NDArray[Any], draws: Draws) -> Any:
        return self.outer.draw(self.inner.reconstruct(self.inner.draw(x, draws)), draws)

    def pack(self, code: Any) -> bytes:
        return self.outer.pack(code)

    def unpack(self, reader: Reader) -> Any:
        return self.outer.unpack(reader)

    def reconstruct(self, code: Any) -> NDArray[Any]:
        return self.outer.reconstruct(code)

    def add(self, code: Any, total: NDArray[Any], factor: float = 1.0) -> None:
        self.outer.add(code, total, factor)

    def marked(self, code: Any) -> Marked | None:
        return self.outer.marked(code)


class KeptCode(NamedTuple):
    """The code of `KeptComposition`: what is kept, and the code of its values."""

    choice: Choice
    values: Any


class KeptComposition(Compressor):
    """`outer` of the elements that the sparsifier `inner` keeps: natural compression of a top-k.

    The message names the kept positions once, and `outer` works on a vector of only
    `kept_elements(inner)`, with zeros at the end where the last block is shorter.

    omega as for `Composition`. If `inner` does not scale, what it drops is orthogonal to what it
    keeps, so that contraction = a_inner (1 - omega_outer), or a_inner a_outer if `outer` is biased
    (Basu et al., Qsparse-local-SGD, NeurIPS 2019, lemma 1, has the first): ||C(x) - x||^2 =
    ||x||^2 - ||kept||^2 + ||outer(kept) - kept||^2. Of an unbiased `outer` divided by omega + 1,
    a_outer is 1/(omega_outer + 1).
    """

    def __init__(self, outer: Compressor, inner: Sparsifier) -> None:
        super().__init__(inner.dimension, inner.dtype)
        _check_fit(outer, inner, kept_elements(inner))
        self.outer = outer
        self.inner = inner

    @property
    def omega(self) -> float:
        return (self.outer.omega + 1) * (self.inner.omega + 1) - 1

    @property
    def contraction(self) -> float:
        if not self.is_biased:
            return super().contraction
        if self.inner.scale != 1:
            return 0.0
        outer = self.outer
        kept = outer.contraction if outer.is_biased else max(0.0, 1 - outer.omega)
        return self.inner.contraction * kept

    def draw(self, x: NDArray[Any], draws: Draws) -> KeptCode:
        return self._drawn(self.inner.draw(x, draws), draws)

    def code_of_sum(self, x: NDArray[Any], y: NDArray[Any], draws: Draws) -> KeptCode:
        return self._drawn(self.inner.code_of_sum(x, y, draws), draws)

    def _drawn(self, kept: Kept, draws: Draws) -> KeptCode:
        values = np.zeros(self.outer.dimension, self.dtype)
        values[: kept.values.size] = kept.values
        code = self.outer.draw(values, draws)
        if self.inner.scale > 1:
            self.inner.check_scale(self.outer.reconstruct(code))
        return KeptCode(kept.choice, code)

    def pack(self, code: KeptCode) -> bytes:
        return b"".join((self.inner.describe(code.choice), self.outer.pack(code.values)))

    def unpack(self, reader: Reader) -> KeptCode:
        return KeptCode(self.inner.read_choice(reader), self.outer.unpack(reader))

    def reconstruct(self, code: KeptCode) -> NDArray[Any]:
        return self.inner.reconstruct(self._kept(code))

    def add(self, code: KeptCode, total: NDArray[Any], factor: float = 1.0) -> None:
        self.inner.add(self._kept(code), total, factor)

    def marked(self, code: KeptCode) -> Marked | None:
        return self.inner.marked(self._kept(code))

    def _kept(self, code: KeptCode) -> Kept:
        """What the inner operator would have sent, with its elements as the outer one sent them."""
        count = self.inner.blocks.marked_elements(code.choice.marks)
        return Kept(code.choice, self.outer.reconstruct(code.values)[:count])


def kept_elements(inner: Compressor) -> int | None:
    """How many elements a sparsifier keeps at most, if that is known before it sees a vector."""
    return inner.most_elements if isinstance(inner, Sparsifier) else None


def _is_scaled(operator: Compressor) -> bool:
    """Whether it is an unbiased operator divided by its omega + 1."""
    if isinstance(operator, Contractive):
        return not operator.inner.is_biased
    return isinstance(operator, Unscaled)


def _check_fit(outer: Compressor, inner: Compressor, size: int | None) -> None:
    if size is None:
        raise CompressError("the inner operator must have a limit to the elements that it keeps")
    if outer.dimension != size or outer.dtype != inner.dtype:
        raise CompressError(
            f"the outer operator must take {size} elements of {inner.dtype}, "
            f"not {outer.dimension} of {outer.dtype}"
        )
