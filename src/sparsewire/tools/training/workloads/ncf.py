"""Neural collaborative filtering (He et al., WWW 2017): who likes what, on MovieLens-like data.

Users and items have a row each in tables of two kinds, for products and for a network. Shapes and
batch are those of OmniReduce's run: MovieLens 20M with 4 times the users and 16 times the items.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.tools.training.workloads.skew import power_law, scattered
from sparsewire.tools.training.workloads.workload import Batch, Job, Size

_NEGATIVES = 4
"""Items that are drawn at random for each item that a user has seen."""
_EXAMPLES = 1 + _NEGATIVES
_USER_EXPONENT = 0.5
_ITEM_EXPONENT = 0.9
_RATE = 0.02


@dataclass(frozen=True)
class Shape:
    """Rows of `factors` elements for products, and of `width` for the network.

    A batch has `batch` examples, of which one in five is of an item that its user has seen.
    """

    users: int
    items: int
    factors: int
    width: int
    batch: int


SIZES: dict[Size, Shape] = {
    "published": Shape(498_975, 427_888, 64, 128, 2**20),
    "here": Shape(498_975 // 8, 427_888 // 8, 64, 128, 2**20 // 8),
    "tiny": Shape(900, 720, 16, 16, 20),
}
_SHARING = 8
"""The ranks of OmniReduce's run."""
SHARED: dict[Size, Shape] = {
    size: replace(shape, batch=max(_EXAMPLES, shape.batch // _SHARING))
    for size, shape in SIZES.items()
}
"""Shapes if the batch is that of all ranks together, as in MLPerf's benchmark, from which the
run's script comes."""


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its ratings."""
    optimizer = partial(torch.optim.Adagrad, lr=_RATE)
    return Job(Filtering(shape, sparse), partial(_batch, shape), optimizer)


def _batch(shape: Shape, draws: np.random.Generator) -> Batch:
    count = shape.batch // _EXAMPLES
    # Examples are shuffled over many batches: those of one batch have users of their own.
    users = scattered(power_law(draws, shape.users, _USER_EXPONENT, shape.batch), shape.users)
    seen = scattered(power_law(draws, shape.items, _ITEM_EXPONENT, count), shape.items)
    others = draws.integers(shape.items, size=shape.batch - count)
    liked = np.zeros(shape.batch, np.float32)
    liked[:count] = 1
    return tuple(map(torch.from_numpy, (users, np.concatenate([seen, others]), liked)))


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
        sizes = (2 * width, 2 * width, width, width // 2)
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.deep = nn.Sequential(*layers)
        self.score = nn.Linear(shape.factors + width // 2, 1)

    def forward(self, users: Tensor, items: Tensor, liked: Tensor) -> Tensor:
        products = self.user_factors(users) * self.item_factors(items)
        deep = self.deep(torch.cat([self.user_rows(users), self.item_rows(items)], dim=1))
        score = self.score(torch.cat([products, deep], dim=1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, liked)
