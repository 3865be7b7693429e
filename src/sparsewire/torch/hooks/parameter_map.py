"""What hooks keep for each parameter.

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
