"""How much of a gradient is not zero, by element and by block."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

BLOCK = 256


@dataclass(frozen=True)
class Density:
    """Fractions, from 0 to 1, of the elements and of the 256-element blocks that are not zero."""

    element: float
    block: float

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> "Density":
        """Measure all `tensors` together; each one begins a new block."""
        elements = nonzero_elements = blocks = nonzero_blocks = 0
        for tensor in tensors:
            flat = tensor.detach().flatten()
            rows = F.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK) != 0
            elements += len(flat)
            nonzero_elements += int(rows.sum())
            blocks += len(rows)
            nonzero_blocks += int(rows.any(1).sum())
        return cls(nonzero_elements / elements, nonzero_blocks / blocks)
