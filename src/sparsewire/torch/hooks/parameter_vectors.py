"""A vector for each parameter: what its gradient still owes, or what is known of its gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from sparsewire.torch.hooks.parameter_map import ParameterMap


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
