"""Sparsifiers on tensors: the choice of the kept blocks, and their packed elements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.compress import Draws, SpanTopK, Threshold, TopK
from sparsewire.compress.compressor import finite
from sparsewire.compress.marks import Marks
from sparsewire.compress.sparsifier import Choice, Kept
from sparsewire.torch.operators.floats import magnitude_bits, rows_of
from sparsewire.torch.operators.norms import norms
from sparsewire.torch.operators.tensor_operator import (
    Arrays,
    TensorCode,
    TensorOperator,
    Values,
    is_not_finite,
    number,
)


class Chosen(NamedTuple):
    """Chosen blocks, int32, ascending; numbers that are no blocks may follow.

    `choice` is the choice on the host, if the host made it.
    """

    blocks: Tensor
    choice: Choice | None = None


class TensorSparsifier(TensorOperator[Any]):
    """The parts are the kept blocks, int32, and their elements, float32, without the scale."""

    @abstractmethod
    def choose(self, x: Tensor, draws: Draws) -> Chosen:
        """Choose the blocks to keep."""

    def draw(self, x: Tensor, draws: Draws) -> TensorCode:
        chosen = self.choose(x, draws)
        values = self._gathered(x, self.elements(chosen.blocks))
        is_refused = is_not_finite(x)
        if self.operator.scale > 1:
            is_refused = is_refused | is_not_finite(self.scaled(values))
        return TensorCode([chosen.blocks, values], is_refused, chosen.choice)

    def code_of(self, arrays: Arrays, known: Any) -> Kept:
        choice = self.choice_of(arrays[0]) if known is None else known
        count = self.operator.blocks.marked_elements(choice.marks)
        return Kept(choice, arrays[1][:count])

    def choice_of(self, blocks: NDArray[np.int32]) -> Choice:
        """The choice of these blocks, perhaps followed by numbers that are no blocks."""
        universe = self.operator.blocks.count
        return Choice(Marks.of(blocks[: np.searchsorted(blocks, universe)], universe))

    def arrays_of(self, code: Kept) -> list[NDArray[Any]]:
        if self.operator.scale > 1:
            with np.errstate(over="ignore"):
                finite(code.values * np.float32(self.operator.scale))
        return [self.blocks_of(code.choice), code.values]

    @staticmethod
    def blocks_of(choice: Choice) -> NDArray[np.int32]:
        """The numbers of the blocks, as the device has them."""
        return choice.blocks.astype(np.int32)

    def kept_elements(self, code: Kept) -> int:
        count: int = self.operator.blocks.marked_elements(code.choice.marks)
        return count

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        blocks, values = parts
        return Values(self.elements(blocks)[:kept], self.scaled(values[:kept]))

    def scaled(self, values: Tensor) -> Tensor:
        """Packed elements times the operator's scale."""
        scale = self.operator.scale
        return values if scale == 1 else values * number(scale, values)

    def elements(self, blocks: Tensor) -> Tensor:
        """The positions of the elements of these blocks, int64; some may be beyond the last."""
        size: int = self.operator.blocks.size
        if size == 1:
            return blocks.long()
        within = torch.arange(size, device=blocks.device)
        return (blocks.long()[:, None] * size + within).flatten()

    @staticmethod
    def _gathered(x: Tensor, positions: Tensor) -> Tensor:
        """The elements at these positions; zeros for positions beyond the last."""
        return torch.where(positions < len(x), x[positions.clamp(max=len(x) - 1)], 0.0)

    def sizes(self, x: Tensor) -> Tensor:
        """The size of each block as int32 bits, which have the same order as the norms."""
        blocks = self.operator.blocks
        return magnitude_bits(x if blocks.size == 1 else norms(x, blocks, 2.0))


class TensorTopK(TensorSparsifier):
    """`TopK` and `BlockTopK` on tensors."""

    operator: TopK

    def choose(self, x: Tensor, draws: Draws) -> Chosen:
        # The first of equal sizes must win; torch.topk takes any.
        order = self.sizes(x).sort(descending=True, stable=True).indices
        return Chosen(order[: self.operator.kept_blocks].sort().values.to(torch.int32))


class TensorSpanTopK(TensorSparsifier):
    """`SpanTopK` on tensors; zeros are not sent, and have numbers that are no blocks."""

    operator: SpanTopK

    def choose(self, x: Tensor, draws: Draws) -> Chosen:
        span, elements = self.operator.span, len(x)
        sizes = rows_of(magnitude_bits(x), min(span, elements))
        order = sizes.sort(dim=1, descending=True, stable=True).indices[:, : self.operator.k]
        first = torch.arange(len(sizes), device=x.device)[:, None] * sizes.shape[1]
        positions = torch.where(sizes.gather(1, order) > 0, first + order, elements)
        return Chosen(positions.flatten().sort().values.to(torch.int32))


class TensorThreshold(TensorSparsifier):
    """`Threshold` and `BlockThreshold` on tensors. Waits for the device to count the blocks."""

    operator: Threshold

    def choose(self, x: Tensor, draws: Draws) -> Chosen:
        bound = magnitude_bits(number(self.operator.least_kept, x))
        return Chosen((self.sizes(x) >= bound).nonzero()[:, 0].to(torch.int32))


class TensorSeeded(TensorSparsifier):
    """Operators whose choice depends on a seed, and not on the vector: the host makes the choice.

    May wait for the device, because the choice is copied from memory that is not pinned.
    """

    def choose(self, x: Tensor, draws: Draws) -> Chosen:
        choice = self.operator.choose(np.empty(0, np.float32), draws)
        blocks = torch.from_numpy(self.blocks_of(choice))
        return Chosen(blocks.to(x.device, non_blocking=True), choice)
