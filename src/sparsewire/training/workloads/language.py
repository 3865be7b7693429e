"""LSTMs that model language of many words (Jozefowicz et al., 2016), on text by Zipf's law.

One table serves as input and, behind a sampled softmax, as output: a step touches the rows of its
words and of the negatives. The matrices of the LSTMs are the dense part of the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.training.lstm import LogUniform
from sparsewire.training.workloads.skew import power_law
from sparsewire.training.workloads.workload import Batch, Job, Size

_LAYERS = 2
# Adagrad begins with steps of this size: a tenth of what the tables begin with.
_RATE = 0.005


@dataclass(frozen=True)
class Shape:
    """`hidden` units of each LSTM, projected to `width`, that of the table's rows.

    A batch has `batch` sequences of `length` words, and `negatives` words for all of them.
    """

    vocabulary: int
    width: int
    hidden: int
    batch: int
    length: int
    negatives: int


SIZES: dict[Size, Shape] = {
    "published": Shape(793_471, 512, 2048, 128, 20, 8192),
    # Projections must be narrower than what is projected.
    "here": Shape(793_471 // 8, 256, 272, 128 // 8, 20, 8192 // 8),
    "tiny": Shape(3000, 16, 20, 4, 5, 16),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its text."""
    optimizer = partial(torch.optim.Adagrad, lr=_RATE)
    return Job(LanguageModel(shape, sparse), partial(_batch, shape), optimizer)


def _batch(shape: Shape, draws: np.random.Generator) -> Batch:
    words = power_law(draws, shape.vocabulary, 1, (shape.batch, shape.length + 1))
    negatives = power_law(draws, shape.vocabulary, 1, shape.negatives)
    text = torch.from_numpy(words)
    return text[:, :-1], text[:, 1:].flatten(), torch.from_numpy(negatives)


class LanguageModel(nn.Module):
    """Gives the sampled-softmax loss of words (batch, length), the next ones (batch * length,)."""

    def __init__(self, shape: Shape, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(shape.vocabulary, shape.width, sparse=sparse)
        self.lstm = nn.LSTM(
            shape.width, shape.hidden, _LAYERS, batch_first=True, proj_size=shape.width
        )
        self._law = LogUniform(shape.vocabulary)
        nn.init.normal_(self.table.weight, std=shape.width**-0.5)

    def forward(self, words: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        # One look-up for all, because each one costs a dense gradient of the table's size.
        parts = [words.numel(), len(targets), len(negatives)]
        rows = self.table(torch.cat([words.flatten(), targets, negatives]))
        inputs, wanted, others = rows.split(parts)
        hidden = self.lstm(inputs.view(*words.shape, -1))[0].flatten(0, 1)
        positive = (hidden * wanted).sum(1)
        correction = self._law.log_probability(negatives) + math.log(len(negatives))
        negative = torch.addmm(-correction, hidden, others.T)
        negative = negative.masked_fill(targets[:, None] == negatives, float("-inf"))
        logits = torch.cat([positive[:, None], negative], dim=1)
        return F.cross_entropy(logits, torch.zeros_like(targets))
