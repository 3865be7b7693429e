"""Operators made of others, on tensors: scaled to a contraction, and one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sparsewire.compress import Composition, Draws, KeptComposition
from sparsewire.compress.composition import KeptCode
from sparsewire.compress.compressor import Contractive
from sparsewire.torch.operators.kept import TensorSparsifier
from sparsewire.torch.operators.tensor_operator import (
    Arrays,
    TensorCode,
    TensorOperator,
    Values,
    is_not_finite,
    number,
)

Form = TensorOperator[Any]


class TensorContractive(TensorOperator[Contractive]):
    """`Contractive` on tensors; the code is that of its inner operator."""

    def __init__(self, operator: Contractive, inner: Form) -> None:
        super().__init__(operator)
        self._inner = inner

    def draw(self, x: Tensor, draws: Draws) -> TensorCode:
        return self._inner.draw(x, draws)

    def code_of(self, arrays: Arrays, known: Any) -> Any:
        return self._inner.code_of(arrays, known)

    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        return self._inner.arrays_of(code)

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        positions, values = self._inner.values(parts, kept)
        return Values(positions, values * number(self.operator.factor, values))

    def kept_elements(self, code: Any) -> int | None:
        return self._inner.kept_elements(code)


class TensorComposition(TensorOperator[Composition]):
    """`Composition` on tensors; the code is that of the outer operator."""

    def __init__(self, operator: Composition, outer: Form, inner: Form) -> None:
        super().__init__(operator)
        self._outer, self._inner = outer, inner

    def draw(self, x: Tensor, draws: Draws) -> TensorCode:
        between = self._inner.draw(x, draws)
        code = self._outer.draw(self._inner.dense(between.parts), draws)
        return code._replace(is_refused=between.is_refused | code.is_refused)

    def code_of(self, arrays: Arrays, known: Any) -> Any:
        return self._outer.code_of(arrays, known)

    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        return self._outer.arrays_of(code)

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        return self._outer.values(parts, kept)

    def kept_elements(self, code: Any) -> int | None:
        return self._outer.kept_elements(code)


class TensorKeptComposition(TensorOperator[KeptComposition]):
    """`KeptComposition` on tensors; the code is the kept blocks, and the code of their elements."""

    def __init__(self, operator: KeptComposition, outer: Form, inner: TensorSparsifier) -> None:
        super().__init__(operator)
        self._outer, self._inner = outer, inner

    def draw(self, x: Tensor, draws: Draws) -> TensorCode:
        kept = self._inner.draw(x, draws)
        blocks, values = kept.parts
        size = self._outer.operator.dimension
        # As many elements as all blocks could have, with zeros at the end.
        filled = functional.pad(values, (0, max(0, size - len(values))))[:size]
        code = self._outer.draw(filled, draws)
        is_refused = kept.is_refused | code.is_refused
        if self._inner.operator.scale > 1:
            sent = self._inner.scaled(self._outer.dense(code.parts))
            is_refused = is_refused | is_not_finite(sent)
        return TensorCode([blocks, *code.parts], is_refused, (kept.known, code.known))

    def code_of(self, arrays: Arrays, known: Any) -> KeptCode:
        choice = self._inner.choice_of(arrays[0]) if known[0] is None else known[0]
        return KeptCode(choice, self._outer.code_of(arrays[1:], known[1]))

    def arrays_of(self, code: KeptCode) -> list[NDArray[Any]]:
        if self._inner.operator.scale > 1:
            self._inner.arrays_of(self.operator.kept(code))
        return [self._inner.blocks_of(code.choice), *self._outer.arrays_of(code.values)]

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        values = self._inner.scaled(self._outer.dense(parts[1:]))[:kept]
        return Values(self._inner.elements(parts[0])[: len(values)], values)

    def kept_elements(self, code: KeptCode) -> int:
        return self.operator.inner.blocks.marked_elements(code.choice.marks)
