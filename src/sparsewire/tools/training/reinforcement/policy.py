"""The policy: a small GPT in bfloat16, and answers that are sampled from it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 384
HEADS = 4
DEPTH = 2


class Policy(nn.Module):
    """A decoder of `depth` blocks; gives logits in float32 for what follows each token."""

    def __init__(
        self, vocabulary: int, length: int, width: int = WIDTH, depth: int = DEPTH
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.bfloat16()

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, length, vocabulary] for tokens [batch, length]."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits.float()


class Block(nn.Module):
    """Attention to what came before, then two layers; both are added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.mixing = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(batch, length, 3 * HEADS, -1)
        query, key, value = parts.transpose(1, 2).chunk(3, dim=1)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixing(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.layers(x)
        return out


@torch.no_grad()
def sample(policy: Policy, prompts: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Prompts [batch, n] with `length` more tokens each, drawn one by one: [batch, n + length]."""
    tokens = prompts
    for _ in range(length):
        chances = policy(tokens)[:, -1].softmax(dim=-1)
        drawn = torch.multinomial(chances, 1, generator=generator)
        tokens = torch.cat([tokens, drawn], dim=1)
    return tokens


def log_chances(policy: nn.Module, tokens: Tensor, length: int) -> Tensor:
    """The logarithm of the chance of each of the last `length` tokens: [batch, length]."""
    logits = policy(tokens[:, :-1])[:, -length:]
    chosen = tokens[:, -length:, None]
    found: Tensor = logits.log_softmax(dim=-1).gather(2, chosen).squeeze(2)
    return found
