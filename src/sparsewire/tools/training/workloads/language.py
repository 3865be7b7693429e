"""An LSTM that models language of many words (Jozefowicz et al., 2016), on text by Zipf's law.

One table is the input, another one, behind a sampled softmax, the output: a step touches the rows
of its words in the first, those of the next words and of the negatives in the second. The matrices
of the LSTM are the dense part of the gradient. Shapes and batch are those of OmniReduce's run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.tools.training.lstm import LogUniform
from sparsewire.tools.training.workloads.skew import power_law
from sparsewire.tools.training.workloads.workload import Batch, Job, Size

# Adagrad begins with steps of this size: a tenth of what the tables begin with.
_RATE = 0.005


@dataclass(frozen=True)
class Shape:
    """`hidden` units of the LSTM, projected to `width`, that of the tables' rows.

    A batch has `batch` sequences of `length` words, and `negatives` words for all of them.
    """

    vocabulary: int
    width: int
    hidden: int
    batch: int
    length: int
    negatives: int


SIZES: dict[Size, Shape] = {
    "published": Shape(793_471, 256, 2048, 512, 20, 8192),
    # With 416 units, the LSTM has a sixteenth of its weights.
    "here": Shape(793_471 // 16, 256, 416, 512 // 16, 20, 8192 // 16),
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
        self.words, self.outputs = (
            nn.Embedding(shape.vocabulary, shape.width, sparse=sparse) for _ in range(2)
        )
        self.biases = nn.Embedding(shape.vocabulary, 1, sparse=sparse)
        self.lstm = nn.LSTM(shape.width, shape.hidden, batch_first=True)
        self.projection = nn.Linear(shape.hidden, shape.width)
        self._law = LogUniform(shape.vocabulary)
        for table in (self.words, self.outputs):
            nn.init.normal_(table.weight, std=shape.width**-0.5)
        nn.init.zeros_(self.biases.weight)

    def forward(self, words: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        hidden = self.projection(self.lstm(self.words(words))[0].flatten(0, 1))
        # One look-up for both, because each one costs a dense gradient of the table's size.
        parts, named = [len(targets), len(negatives)], torch.cat([targets, negatives])
        wanted, others = self.outputs(named).split(parts)
        bias, other_biases = self.biases(named).squeeze(1).split(parts)
        positive = (hidden * wanted).sum(1) + bias
        correction = self._law.log_probability(negatives) + math.log(len(negatives))
        negative = torch.addmm(other_biases - correction, hidden, others.T)
        negative = negative.masked_fill(targets[:, None] == negatives, float("-inf"))
        logits = torch.cat([positive[:, None], negative], dim=1)
        return F.cross_entropy(logits, torch.zeros_like(targets))
