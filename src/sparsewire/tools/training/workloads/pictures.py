"""Pictures of a thousand kinds, made by seed: each has a coarse pattern, with noise over it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.tools.training.workloads.workload import Batch

KINDS = 1000
_PATTERN = 8


def batch(count: int, side: int, draws: np.random.Generator) -> Batch:
    """Pictures, float32 (count, 3, side, side), and their kinds, int64 (count,)."""
    kinds = draws.integers(KINDS, size=count)
    shape = (3, _PATTERN, _PATTERN)
    patterns = [np.random.default_rng(kind).standard_normal(shape, np.float32) for kind in kinds]
    coarse = torch.from_numpy(np.stack(patterns))
    noise = torch.from_numpy(draws.standard_normal((count, 3, side, side), np.float32))
    return F.interpolate(coarse, size=(side, side)) + noise, torch.from_numpy(kinds)


class Classifying(nn.Module):
    """Gives the loss of a network's scores of pictures, (count, kinds)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pictures: Tensor, kinds: Tensor) -> Tensor:
        return F.cross_entropy(self.network(pictures), kinds)
