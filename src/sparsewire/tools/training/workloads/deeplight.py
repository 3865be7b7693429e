"""DeepLight: click-through rates from a huge table (Deng et al., WSDM 2021), on Criteo-like data.

Every field of a sample names one row. The score is linear in the rows, adds weighted products of
every two of them (a field-weighted factorisation machine), and what a small network makes of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.tools.training.workloads.skew import power_law, scattered
from sparsewire.tools.training.workloads.workload import Batch, Job, Size

_BINS = 40
_NUMERIC = [_BINS] * 13
# The categories of Criteo's display advertising data, seven days, field by field.
_CATEGORIES = [
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
]
_EXPONENT = 1.05
_RATE = 0.02


@dataclass(frozen=True)
class Shape:
    """`rows` of the table in all, each of `width` elements; `hidden` units in each of 3 layers."""

    rows: int
    width: int
    hidden: int
    batch: int


SIZES: dict[Size, Shape] = {
    "published": Shape(60_747_983, 10, 400, 2048),
    "here": Shape(60_747_983 // 16, 10, 60, 512),
    "tiny": Shape(20_000, 10, 8, 8),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model over a table, and its batches."""
    fields = field_rows(shape.rows)
    model = DeepLight(shape, len(fields), sparse)
    optimizer = partial(torch.optim.Adagrad, lr=_RATE)
    return Job(model, partial(_batch, fields, shape.batch), optimizer)


def field_rows(rows: int) -> list[int]:
    """The rows of each field, in the proportions of Criteo's; small fields keep some."""
    known = [*_NUMERIC, *_CATEGORIES]
    scaled = [max(3, known_rows * rows // sum(known)) for known_rows in known]
    scaled[scaled.index(max(scaled))] += rows - sum(scaled)
    return scaled


def _batch(fields: Sequence[int], batch: int, draws: np.random.Generator) -> Batch:
    first = np.concatenate([[0], np.cumsum(fields)[:-1]])
    columns = [scattered(power_law(draws, rows, _EXPONENT, batch), rows) for rows in fields]
    rows = np.stack(columns, axis=1) + first
    # Every row pushes a sample one way: what there is to learn.
    pushes = np.sin(rows * 12.9898).sum(axis=1) - 2
    clicked = draws.random(batch) < 1 / (1 + np.exp(-pushes))
    return torch.from_numpy(rows), torch.from_numpy(clicked.astype(np.float32))


class DeepLight(nn.Module):
    """Gives the logistic loss of a batch: rows, int64 (batch, fields), and clicks (batch,)."""

    def __init__(self, shape: Shape, fields: int, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(shape.rows, shape.width, sparse=sparse)
        self.linear = nn.Parameter(torch.zeros(fields, shape.width))
        self.products = nn.Parameter(torch.full((fields, fields), 1 / fields))
        layers: list[nn.Module] = []
        width = fields * shape.width
        for _ in range(3):
            layers += [nn.Linear(width, shape.hidden), nn.ReLU()]
            width = shape.hidden
        self.deep = nn.Sequential(*layers, nn.Linear(width, 1))
        nn.init.normal_(self.table.weight, std=0.01)

    def forward(self, rows: Tensor, clicked: Tensor) -> Tensor:
        found = self.table(rows)
        pairs = (found @ found.transpose(1, 2) * self.products).triu(1).sum((1, 2))
        linear = (found * self.linear).sum((1, 2))
        score = linear + pairs + self.deep(found.flatten(1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, clicked)
