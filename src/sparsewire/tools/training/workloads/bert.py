"""BERT-large fine-tuned to find answers (Devlin et al., 2019), on text by Zipf's law.

The rows of words that a batch does not name are the zeros of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from sparsewire.tools.training.workloads.skew import power_law
from sparsewire.tools.training.workloads.workload import Batch, Job, Size

_RATE = 5e-5


@dataclass(frozen=True)
class Shape:
    """`layers` of `width`, with a head for 64 elements of it and four times as many inside."""

    vocabulary: int
    layers: int
    width: int
    batch: int
    length: int


SIZES: dict[Size, Shape] = {
    "published": Shape(30_522, 24, 1024, 4, 384),
    "here": Shape(30_522 // 8, 3, 1024, 4, 384 // 12),
    "tiny": Shape(500, 1, 64, 2, 8),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its texts. Its table has no sparse gradients, so `sparse` is moot."""
    model = Answering(shape)
    return Job(model, partial(_batch, shape), partial(torch.optim.AdamW, lr=_RATE))


def _batch(shape: Shape, draws: np.random.Generator) -> Batch:
    words = power_law(draws, shape.vocabulary, 1, (shape.batch, shape.length))
    # The answer begins at the rarest word and ends with the text.
    starts = words.argmax(axis=1)
    ends = np.full_like(starts, shape.length - 1)
    return tuple(map(torch.from_numpy, (words, starts, ends)))


class Answering(nn.Module):
    """Gives the loss of words (batch, length) and of where answers start and end, each (batch,)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        from transformers import BertConfig, BertForQuestionAnswering

        config = BertConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.width // 64,
            intermediate_size=4 * shape.width,
        )
        self.bert = BertForQuestionAnswering(config)

    def forward(self, words: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        answer = self.bert(input_ids=words, start_positions=starts, end_positions=ends)
        loss: Tensor = answer.loss
        return loss
