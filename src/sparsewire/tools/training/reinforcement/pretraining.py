"""The weights that reinforcement starts from: the policy learns from demonstrations first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from sparsewire.tools.training.reinforcement.learner import Masters
from sparsewire.tools.training.reinforcement.policy import Policy, log_chances
from sparsewire.tools.training.reinforcement.reversal import COUNT, demonstrations

BATCH = 32
RATE = 1e-3
WARMUP = 20


def pretrain(
    policy: Policy, steps: int, seed: int, done: Callable[[int, float], object] | None = None
) -> None:
    """Imitate demonstrations; `done` gets the number of steps so far, and the loss."""
    generator = torch.Generator().manual_seed(seed)
    masters = Masters(policy.parameters(), RATE, WARMUP)
    for step in range(steps):
        loss = -log_chances(policy, demonstrations(BATCH, generator), COUNT).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        masters.step()
        if done:
            done(step + 1, loss.item())


def save(policy: nn.Module, file: Path) -> None:
    """Write all parameters into a file of NumPy's."""
    np.save(file, parameters_to_vector(policy.parameters()).detach().float().numpy())


def load(policy: nn.Module, file: Path) -> None:
    """Read what `save` has written; raises ValueError for another model's."""
    vector_to_parameters(torch.from_numpy(np.load(file)).bfloat16(), policy.parameters())
