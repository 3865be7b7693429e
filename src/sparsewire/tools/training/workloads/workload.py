"""A workload: a model whose forward pass gives the loss, its batches and its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

Size = Literal["published", "here", "tiny"]
"""Published: as in the code of OmniReduce's authors (github.com/sands-lab/omnireduce-experiments).
Here: scaled for one machine of 24 GiB and two processors. Tiny: for tests."""

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Job:
    """One rank's part: equal models on all ranks, batches by whatever generator is passed."""

    model: nn.Module
    batch: Callable[[np.random.Generator], Batch]
    """Draws one batch; the model called with its tensors gives the loss."""
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]

    def batch_of(self, seed: int, rank: int, step: int) -> Batch:
        """The batch of one rank in one step: the same in each run."""
        return self.batch(np.random.default_rng((seed, rank, step)))


@dataclass(frozen=True)
class Workload:
    """A row of the table: sizes by name, and what makes a job of one of them.

    `scaled` says how the size "here" differs from the published one.
    """

    title: str
    sizes: dict[Size, Any]
    make: Callable[[Any, bool], Job]
    """Makes a job of a size; with True, gradients of tables are sparse tensors."""
    scaled: str
    needs: str | None = None
    """A package that the model comes from."""
    has_tables: bool = False
    """Whether there are tables whose gradients may be sparse tensors."""
