"""What hooks keep for each parameter: any value, or a vector of what is owed or known of it.

DDP forms its buckets anew after the first iteration, so a bucket says nothing about what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

T = TypeVar("T")


class ParameterMap(Generic[T]):
    """A value for each parameter: made when it is first asked for, gone with the parameter."""

    def __init__(self, make: Callable[[torch.Tensor], T]) -> None:
        self._make = make
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def of(self, parameter: torch.Tensor) -> T:
        """The value of a parameter."""
        if parameter not in self._of:
            self._of[parameter] = self._make(parameter)
        value: T = self._of[parameter]
        return value

    def named(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, T]:
        """The values that were made for these parameters, by name."""
        return {
            name: self._of[parameter]
            for name, parameter in parameters.items()
            if parameter in self._of
        }

    def replace(self, values: Mapping[str, T], parameters: Mapping[str, torch.Tensor]) -> None:
        """Have these values and no others; every name must be that of a parameter."""
        self._of.clear()
        for name, value in values.items():
            self._of[parameters[name]] = value


class ParameterVectors(ParameterMap[torch.Tensor]):
    """Float32 tensors on the CPU, one element for each of the parameter, in its order in memory.

    They are zeros at first.
    """

    def __init__(self) -> None:
        super().__init__(lambda parameter: torch.zeros(parameter.numel()))

    def named(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies of the vectors, by the names of their parameters."""
        return {name: vector.clone() for name, vector in super().named(parameters).items()}

    def replace(
        self, values: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.Tensor]
    ) -> None:
        """Have copies of these and no others; raises ValueError where one does not fit."""
        for name, vector in values.items():
            if name not in parameters or parameters[name].numel() != vector.numel():
                raise ValueError(
                    f"the saved vector {name!r} of {vector.numel()} elements fits no parameter of "
                    "the model: load it with the model that it was saved with"
                )
        copies = {
            name: vector.to("cpu", torch.float32, copy=True) for name, vector in values.items()
        }
        super().replace(copies, parameters)
