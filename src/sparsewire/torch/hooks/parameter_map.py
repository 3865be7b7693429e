"""Values that hooks keep for each parameter: any value, a vector such as its residual or shift, or
an operator made for its size.

DDP forms its buckets anew after the first iteration, so a bucket does not identify parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from weakref import ref

import torch

from sparsewire.compress import CompressError, Compressor, parse

T = TypeVar("T")

MakeCompressor = Callable[[int], Compressor]

# An operator can be made for this many elements if its settings make sense for any parameter.
_LARGE = 2**24


class ParameterMap(Generic[T]):
    """A value for each parameter: made when first asked for, and dropped with the parameter."""

    def __init__(self, make: Callable[[torch.Tensor], T]) -> None:
        self._make = make
        # Keys are identities: torch's own maps with weak keys take microseconds per look-up.
        self._of: dict[int, tuple[ref[torch.Tensor], T]] = {}

    def of(self, parameter: torch.Tensor) -> T:
        """The value of a parameter."""
        kept = self._of.get(id(parameter))
        return self._keep(parameter, self._make(parameter)) if kept is None else kept[1]

    def _keep(self, parameter: torch.Tensor, value: T) -> T:
        of, number = self._of, id(parameter)
        of[number] = ref(parameter, lambda _: of.pop(number, None)), value
        return value

    def named(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, T]:
        """The values that were made for these parameters, by name."""
        return {
            name: self._of[id(parameter)][1]
            for name, parameter in parameters.items()
            if id(parameter) in self._of
        }

    def replace(self, values: Mapping[str, T], parameters: Mapping[str, torch.Tensor]) -> None:
        """Replace all values by these; every name must be the name of a parameter."""
        self._of.clear()
        for name, value in values.items():
            self._keep(parameters[name], value)


class ParameterVectors(ParameterMap[torch.Tensor]):
    """Flat float32 tensors, with one element for each element of the parameter, in memory order.

    They are zeros at first, and on the CPU until `bring` moves them.
    """

    def __init__(self) -> None:
        super().__init__(_zeros)

    def bring(self, parameter: torch.Tensor, device: torch.device) -> None:
        """Move the vector of a parameter to a device."""
        vector = self.of(parameter)
        if vector.device != device:
            self._keep(parameter, vector.to(device))

    def named(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies of the vectors on the CPU, by the names of their parameters."""
        vectors = super().named(parameters)
        return {name: vector.to("cpu", copy=True) for name, vector in vectors.items()}

    def replace(
        self, values: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.Tensor]
    ) -> None:
        """Replace all vectors by copies of these; raises ValueError if one does not fit."""
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


def maker_of(
    compressor: str | MakeCompressor, adapt: Callable[[Compressor], Compressor]
) -> MakeCompressor:
    """A function that makes operators for any number of elements, changed by `adapt`.

    Raises CompressError for names that `parse` does not know, and the errors of `adapt`.
    """
    if not isinstance(compressor, str):
        make = compressor
        return lambda dimension: adapt(make(dimension))
    text = compressor
    adapt(parse(text, _LARGE))
    return lambda dimension: adapt(parse(text, dimension))


def operator_for(make: MakeCompressor, parameter: torch.Tensor) -> Compressor:
    """The operator for a parameter's gradient; raises CompressError if it cannot be made."""
    size = parameter.numel()
    try:
        operator = make(size)
    except CompressError as error:
        raise CompressError(f"for a parameter of {size} elements: {error}") from error
    if operator.dimension != size:
        raise CompressError(
            f"for a parameter of {size} elements: the operator takes {operator.dimension}"
        )
    return operator


def _zeros(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros(parameter.numel(), dtype=torch.float32, device="cpu")
