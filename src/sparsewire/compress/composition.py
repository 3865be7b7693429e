"""Operators made of others: of two, one after the other; of several, one drawn for each vector; and
of any, contractions, as error feedback needs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor, Contractive
from sparsewire.compress.cosines import InCosines
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Marked
from sparsewire.compress.message import Reader
from sparsewire.compress.seeded import SeededSparsifier, Unscaled, unscaled
from sparsewire.compress.sparsifier import Choice, Kept, Sparsifier
from sparsewire.errors import CompressError

_MOST = 256


class _Pair(Compressor):
    """`outer` of vectors of `size` elements that come of `inner`, drawn independently.

    omega = (omega_outer + 1) (omega_inner + 1) - 1, since E||outer(inner(x))||^2 <= (omega_outer +
    1) E||inner(x)||^2 (Horvath et al., Natural compression for distributed deep learning, arXiv
    1905.10988).
    """

    def __init__(self, outer: Compressor, inner: Compressor, size: int | None) -> None:
        super().__init__(inner.dimension, inner.dtype)
        if size is None:
            raise CompressError(
                "the inner operator must have a limit to the elements that it keeps"
            )
        if outer.dimension != size or outer.dtype != inner.dtype:
            raise CompressError(
                f"the outer operator must take {size} elements of {inner.dtype}, "
                f"not {outer.dimension} of {outer.dtype}"
            )
        self.outer = outer
        self.inner = inner
        self.parts = (inner,)

    @property
    def omega(self) -> float:
        return (self.outer.omega + 1) * (self.inner.omega + 1) - 1


class Composition(_Pair):
    """outer(inner(x)), drawn independently; the message is that of `outer`.

    omega = (omega_outer + 1) (omega_inner + 1) - 1. Where `inner` is biased and `outer` is b Q,
    with Q unbiased and b = 1/(omega_Q + 1), contraction = b a_inner: with y = inner(x), E||b Q(y) -
    x||^2 <= b ||y||^2 - 2b <y, x> + ||x||^2 = b ||y - x||^2 + (1 - b) ||x||^2, and E||y - x||^2 <=
    (1 - a_inner) ||x||^2. With y = x it is the bound of `Contractive`. Otherwise nothing is known
    of the contraction.
    """

    def __init__(self, outer: Compressor, inner: Compressor) -> None:
        super().__init__(outer, inner, inner.dimension)
        self.parts = (outer, inner)

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


class KeptComposition(_Pair):
    """`outer` of the elements that the sparsifier `inner` keeps: natural compression of a top-k.

    The message names the kept positions once, and `outer` works on a vector of only
    `kept_elements(inner)`, with zeros at the end where the last block is shorter.

    omega as for `Composition`. If `inner` does not scale, what it drops is orthogonal to what it
    keeps, so that contraction = a_inner (1 - omega_outer), or a_inner a_outer if `outer` is biased
    (Basu et al., Qsparse-local-SGD, NeurIPS 2019, lemma 1, has the first): ||C(x) - x||^2 =
    ||x||^2 - ||kept||^2 + ||outer(kept) - kept||^2. Of an unbiased `outer` divided by omega + 1,
    a_outer is 1/(omega_outer + 1).
    """

    inner: Sparsifier

    def __init__(self, outer: Compressor, inner: Sparsifier) -> None:
        super().__init__(outer, inner, kept_elements(inner))

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
        values, missing = kept.values, self.outer.dimension - kept.values.size
        if missing:
            values = np.concatenate((values, np.zeros(missing, self.dtype)))
        code = self.outer.draw(values, draws)
        if self.inner.scale > 1:
            self.inner.check_scale(self.outer.reconstruct(code))
        return KeptCode(kept.choice, code)

    def pack(self, code: KeptCode) -> bytes:
        return b"".join((self.inner.describe(code.choice), self.outer.pack(code.values)))

    def unpack(self, reader: Reader) -> KeptCode:
        return KeptCode(self.inner.read_choice(reader), self.outer.unpack(reader))

    def reconstruct(self, code: KeptCode) -> NDArray[Any]:
        return self.inner.reconstruct(self.kept(code))

    def add(self, code: KeptCode, total: NDArray[Any], factor: float = 1.0) -> None:
        self.inner.add(self.kept(code), total, factor)

    def marked(self, code: KeptCode) -> Marked | None:
        return self.inner.marked(self.kept(code))

    def kept(self, code: KeptCode) -> Kept:
        """The inner operator's choice, with its elements as the outer operator sent them."""
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


class Drawn(NamedTuple):
    """The code: which operator, and its code."""

    number: int
    code: Any


class Mixture(Compressor):
    """Operator i with probability p_i, all of the same dimension and dtype.

    omega = sum p_i omega_i, since E||C(x)||^2 = sum p_i E||C_i(x)||^2. Where some are biased,
    contraction = sum p_i a_i, at least 0, with a_i = 1 - omega_i for the unbiased ones, as
    E||C(x) - x||^2 = sum p_i E||C_i(x) - x||^2. It is 0 where it is 0 of a biased one, of which no
    bound may be known. The message begins with a byte for i. Probabilities must sum to 1 up to
    1e-9.
    """

    def __init__(self, operators: Sequence[Compressor], probabilities: Sequence[float]) -> None:
        if not 1 <= len(operators) <= _MOST or len(operators) != len(probabilities):
            raise CompressError(f"a mixture has 1 to {_MOST} operators, a probability for each")
        first = operators[0]
        super().__init__(first.dimension, first.dtype)
        if any((o.dimension, o.dtype) != (first.dimension, first.dtype) for o in operators):
            raise CompressError("the operators of a mixture must have one dimension and dtype")
        if min(probabilities) < 0 or not math.isclose(sum(probabilities), 1, abs_tol=1e-9):
            raise CompressError(f"probabilities must sum to 1, unlike {list(probabilities)}")
        self.operators = self.parts = tuple(operators)
        self.probabilities = tuple(probabilities)
        self._limits = np.cumsum(probabilities)

    @property
    def omega(self) -> float:
        return sum(p * o.omega for p, o in self._possible())

    @property
    def contraction(self) -> float:
        if not self.is_biased:
            return super().contraction
        possible = self._possible()
        if any(o.is_biased and not o.contraction > 0 for _, o in possible):
            return 0.0
        kept = sum(p * (o.contraction if o.is_biased else 1 - o.omega) for p, o in possible)
        return max(0.0, kept)

    def _possible(self) -> list[tuple[float, Compressor]]:
        pairs = zip(self.probabilities, self.operators, strict=True)
        return [(p, operator) for p, operator in pairs if p > 0]

    def draw(self, x: NDArray[Any], draws: Draws) -> Drawn:
        at = (draws.key() >> 11) * 2.0**-53 * self._limits[-1]
        number = int(np.searchsorted(self._limits[:-1], at, side="right"))
        return Drawn(number, self.operators[number].draw(x, draws))

    def pack(self, code: Drawn) -> bytes:
        return b"".join((bytes([code.number]), self.operators[code.number].pack(code.code)))

    def unpack(self, reader: Reader) -> Drawn:
        number = reader.view(1)[0]
        if number >= len(self.operators):
            raise CompressError(f"malformed message: there is no operator {number}")
        return Drawn(number, self.operators[number].unpack(reader))

    def reconstruct(self, code: Drawn) -> NDArray[Any]:
        return self.operators[code.number].reconstruct(code.code)

    def add(self, code: Drawn, total: NDArray[Any], factor: float = 1.0) -> None:
        self.operators[code.number].add(code.code, total, factor)

    def marked(self, code: Drawn) -> Marked | None:
        return self.operators[code.number].marked(code.code)


def as_contraction(operator: Compressor) -> Compressor:
    """The operator with each unbiased part divided by its omega + 1; the message is the same.

    What is owed stays bounded where E||C(x) - x||^2 <= (1 - a) ||x||^2 with a > 0 (Stich,
    Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018), and may grow without end
    elsewhere. An unbiased operator has a = 1/(omega + 1) then (`Contractive`), and so has each
    unbiased part; `Composition`, `KeptComposition` and `Mixture` derive a of the whole.

    Raises CompressError where no a > 0 is known of the result, unless what it drops has an absolute
    bound: that of a plain threshold has, and of `Visible`.
    """
    scaled = _scaled(operator)
    if not scaled.contraction > 0 and math.isinf(scaled.error_bound):
        raise CompressError(
            "error feedback needs a contraction, and none is known of this operator: let the "
            "biased one of two come last, as in natural+top-k:0.1, let thresholds stand alone, and "
            "give operators of your own a `contraction`"
        )
    return scaled


def _scaled(operator: Compressor) -> Compressor:
    match operator:
        case SeededSparsifier():
            return unscaled(operator)
        case Compressor(is_biased=False):
            return Contractive(operator)
        case Composition(outer=outer, inner=inner):
            return Composition(_scaled(outer), _scaled(inner))
        case KeptComposition(outer=outer, inner=inner):
            return KeptComposition(_scaled(outer), unscaled(inner))
        case InCosines():
            return operator.with_inner(_scaled)
        case Mixture(operators=operators, probabilities=probabilities):
            return Mixture([_scaled(each) for each in operators], probabilities)
    return operator
