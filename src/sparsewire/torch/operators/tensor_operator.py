"""The base class of operators on tensors, which make and read codes on the device of the vector.

A code is a few tensors on the device. Its arrays on the host become the code of the operator
itself, which makes a message of it.
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
    """The code that `draw` makes of a vector. `known` is the part that the host knows already."""

    parts: list[Tensor]
    is_refused: Tensor
    """True if the vector is not finite, or the operator cannot express it; bool, no dimensions."""
    known: Any = None


class Values(NamedTuple):
    """The vector of a code: float32 values at these positions, int64; None: at all positions."""

    positions: Tensor | None
    values: Tensor


class TensorOperator(ABC, Generic[O]):
    """An operator of float32 on torch tensors of shape (dimension,).

    Methods do not wait for the device, unless a class says so.
    """

    def __init__(self, operator: O) -> None:
        self.operator = operator

    @abstractmethod
    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        """The code of `x`, which is contiguous; the parts are undefined if it `is_refused`."""

    @abstractmethod
    def code_of(self, arrays: Arrays, known: Any) -> Any:
        """The operator's own code, of the parts of `draw` as arrays on the host, and `known`."""

    @abstractmethod
    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        """The parts of the operator's own code, for the device.

        Raises CompressError if the vector of the code is not finite.
        """

    @abstractmethod
    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        """The vector of these parts; `kept` is the `kept_elements` of their code.

        Without `kept`, positions beyond the last element may follow, with zeros as their values.
        """

    def kept_elements(self, code: Any) -> int | None:
        """The number of elements in a code of the operator; None if it has all elements."""
        return None

    def add(self, parts: Sequence[Tensor], total: Tensor, factor: float, kept: int | None) -> None:
        """Add `factor` times the vector of a code to `total`, each step rounded to float32.

        `kept` is the `kept_elements` of the code.
        """
        positions, values = self.values(parts, kept)
        scaled = values if factor == 1 else values * factor
        if positions is None:
            total += scaled
        else:
            total[positions] += scaled

    def dense(self, parts: Sequence[Tensor]) -> Tensor:
        """The vector of a code, shape (dimension,)."""
        positions, values = self.values(parts)
        if positions is None:
            return values
        room = values.new_zeros(self.operator.dimension + 1)
        return room.index_put_((positions.clamp(max=len(room) - 1),), values)[:-1]


class WholeVector(TensorOperator[Compressor]):
    """`Identity` on tensors; the code is the vector."""

    def draw(self, x: Tensor, draws: Any) -> TensorCode:
        return TensorCode([x], is_not_finite(x))

    def code_of(self, arrays: Arrays, known: Any) -> Any:
        return arrays[0]

    def arrays_of(self, code: Any) -> list[NDArray[Any]]:
        return [np.asarray(code)]

    def values(self, parts: Sequence[Tensor], kept: int | None = None) -> Values:
        return Values(None, parts[0])


def is_not_finite(x: Tensor) -> Tensor:
    """Whether any element is infinite or NaN; a bool tensor without dimensions."""
    return x.isfinite().all().logical_not()


def number(value: float, like: Tensor) -> Tensor:
    """A number as a tensor on a device: CUDA divides by a host number through its inverse."""
    return torch.full((), value, dtype=like.dtype, device=like.device)
