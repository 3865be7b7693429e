"""Neural collaborative filtering (He et al., WWW 2017): who likes what, on MovieLens-like data.

Users and items have a row each in tables of two kinds, for products and for a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.training.workloads.skew import power_law, scattered
from sparsewire.training.workloads.workload import Batch, Job, Size

_NEGATIVES = 4
"""For each film that a user has seen, so many that are drawn at random."""
_USER_EXPONENT = 0.5
_ITEM_EXPONENT = 0.9
_RATE = 0.02


@dataclass(frozen=True)
class Shape:
    """Rows of `factors` elements for products, and of `width` for the network; `seen` per batch."""

    users: int
    items: int
    factors: int
    width: int
    seen: int


SIZES: dict[Size, Shape] = {
    # MovieLens 20M's users and films. The paper tells the size of all rows, and not of each kind.
    "published": Shape(138_493, 26_744, 768, 256, 8192),
    "here": Shape(138_493 // 8, 26_744 // 8, 768, 256, 900),
    "tiny": Shape(300, 60, 48, 16, 4),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its ratings."""
    optimizer = partial(torch.optim.Adagrad, lr=_RATE)
    return Job(Filtering(shape, sparse), partial(_batch, shape), optimizer)


def _batch(shape: Shape, draws: np.random.Generator) -> Batch:
    users = scattered(power_law(draws, shape.users, _USER_EXPONENT, shape.seen), shape.users)
    seen = scattered(power_law(draws, shape.items, _ITEM_EXPONENT, shape.seen), shape.items)
    others = draws.integers(shape.items, size=(shape.seen, _NEGATIVES))
    items = np.concatenate([seen[:, None], others], axis=1)
    liked = np.zeros(items.shape, np.float32)
    liked[:, 0] = 1
    everybody = np.repeat(users, 1 + _NEGATIVES)
    return tuple(map(torch.from_numpy, (everybody, items.reshape(-1), liked.reshape(-1))))


class Filtering(nn.Module):
    """Gives the logistic loss of users, items and whether one likes the other, each (batch,)."""

    def __init__(self, shape: Shape, sparse: bool) -> None:
        super().__init__()

        def table(rows: int, width: int) -> nn.Embedding:
            made = nn.Embedding(rows, width, sparse=sparse)
            nn.init.normal_(made.weight, std=0.05)
            return made

        width = shape.width
        self.user_factors = table(shape.users, shape.factors)
        self.item_factors = table(shape.items, shape.factors)
        self.user_rows, self.item_rows = table(shape.users, width), table(shape.items, width)
        layers: list[nn.Module] = []
        for inputs in (2 * width, width, width // 2):
            layers += [nn.Linear(inputs, inputs // 2), nn.ReLU()]
        self.deep = nn.Sequential(*layers)
        self.score = nn.Linear(shape.factors + width // 4, 1)

    def forward(self, users: Tensor, items: Tensor, liked: Tensor) -> Tensor:
        products = self.user_factors(users) * self.item_factors(items)
        deep = self.deep(torch.cat([self.user_rows(users), self.item_rows(items)], dim=1))
        score = self.score(torch.cat([products, deep], dim=1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, liked)
