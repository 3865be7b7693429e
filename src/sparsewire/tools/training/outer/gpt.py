"""The model of `sparsewire bench outer`: a small GPT over characters, whose pass gives the loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

_DEVIATION = 0.02


@dataclass(frozen=True)
class Shape:
    """`layers` blocks of `heads` heads, `width` numbers a character, `context` characters each."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    """Windows of a replica in each step."""


class GPT(nn.Module):
    """Characters to the mean loss of the next one; the first table is the last layer, too."""

    def __init__(self, vocabulary: int, shape: Shape) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, shape.width)
        self.places = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last = nn.LayerNorm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_DEVIATION)

    def forward(self, read: Tensor, following: Tensor) -> Tensor:
        """The loss in nats a character; both are int64 (batch, context)."""
        found = self.last(self.blocks(self.characters(read) + self.places.weight))
        scores = F.linear(found, self.characters.weight)
        return F.cross_entropy(scores.flatten(0, 1), following.flatten())


class Block(nn.Module):
    """Attention to what came before, then a feed-forward network; both are added to the input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.mixing = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attention(self.before(x)).view(*x.shape[:2], 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.mixing(seen.transpose(1, 2).flatten(2))
        added: Tensor = self.down(F.gelu(self.up(self.between(x))))
        return x + added
