"""What every operator on tensors is: codes made and read where the vector is, and their two forms.

A code is a few tensors on the device. As arrays on the host it is that of the operator itself,
which makes a message of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.compress import Compressor

O = TypeVar("O", bound=Compressor)  # noqa: E741
Arrays = Sequence[NDArray[Any]]


class TensorCode(NamedTuple):
    """What `draw` makes of a vector. `known` is what of it the host knows already."""

    parts: list[Tensor]
    is_refused: Tensor
    """Of bool, without dimensions: the vector is not finite, or the operator cannot express it."""
    known: Any = None


class Values(NamedTuple):
    """What a code stands for: float32 values at these elements, int64, or of all where None."""

    positions: Tensor | None
    values: Tensor


class TensorOperator(ABC, Generic[O]):
    """An operator of float32 on vectors of shape (dimension,), which are torch tensors.

    Nothing here waits for the device, unless a class says so.
    """

    def __init__(self, operator: O) -> None:
        self.operator = operator

    @abstractmethod
    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        """The code of `x`, contiguous; worthless where it is refused."""

    @abstractmethod
    def code_of(self, arrays: Arrays, known: Any) -> Any:
        """The operator's own code, of what `draw` made and the host has got."""

    @abstractmethod
    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        """The parts of a code of the operator, for the device.

        Raises CompressError where what it stands for is not finite.
        """

    @abstractmethod
    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        """What these parts stand for; `kept` is what `kept_elements` says of their code.

        Without it, positions may follow that are beyond the last element, and zeros for them.
        """

    def kept_elements(self, code: Any) -> int | None:
        """Of how many elements a code of the operator tells; None where it is all."""
        return None

    def add(self, parts: Sequence[Tensor], total: Tensor, factor: float, kept: int | None) -> None:
        """Add `factor` times what a code stands for to `total`, each step rounded to float32.

        `kept` is what `kept_elements` says of it.
        """
        positions, values = self.values(parts, kept)
        scaled = values if factor == 1 else values * factor
        if positions is None:
            total += scaled
        else:
            total[positions] += scaled

    def dense(self, parts: Sequence[Tensor]) -> Tensor:
        """What a code stands for, shape (dimension,)."""
        positions, values = self.values(parts)
        if positions is None:
            return values
        room = values.new_zeros(self.operator.dimension + 1)
        return room.index_put_((positions.clamp(max=len(room) - 1),), values)[:-1]


class WholeVector(TensorOperator[Compressor]):
    """Of `Identity`: everything."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        return TensorCode([x], is_not_finite(x))

    def code_of(self, arrays: Arrays, known: Any) -> Any:
        return arrays[0]

    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        return [np.asarray(code)]

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        return Values(None, parts[0])


def is_not_finite(x: Tensor) -> Tensor:
    """Whether any element is infinite or NaN, of bool, without dimensions."""
    return x.isfinite().all().logical_not()


def number(value: float, like: Tensor) -> Tensor:
    """A number as a tensor on a device: CUDA multiplies by the inverse of one on the host."""
    return torch.full((), value, dtype=like.dtype, device=like.device)
