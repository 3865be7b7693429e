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

    def forward(self, tokens: Tensor, past: list[Past] | None = None) -> Tensor:
        """Logits [batch, length, vocabulary] for tokens [batch, length].

        With a `past` for each block, tokens go on behind those that it has seen.
        """
        begin = past[0].length if past else 0
        x = self.tokens(tokens) + self.positions.weight[begin : begin + tokens.shape[1]]
        for number, block in enumerate(self.blocks):
            x = block(x, past[number] if past else None)
        logits: Tensor = self.head(self.norm(x))
        return logits.float()


class Past:
    """Keys and values of the tokens that a block has seen: first many, and then one by one."""

    def __init__(self) -> None:
        self._seen: tuple[Tensor, Tensor] | None = None

    @property
    def length(self) -> int:
        """How many tokens it has seen."""
        return self._seen[0].shape[2] if self._seen else 0

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of further tokens; returns all."""
        if self._seen:
            key, value = torch.cat([self._seen[0], key], 2), torch.cat([self._seen[1], value], 2)
        self._seen = key, value
        return self._seen


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

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).view(batch, length, 3 * HEADS, -1)
        query, key, value = parts.transpose(1, 2).chunk(3, dim=1)
        if past is not None:
            key, value = past.extend(key, value)
        # A single token sees all that is there.
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.mixing(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.layers(x)
        return out


@torch.no_grad()
def sample(
    policy: Policy, prompts: Tensor, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw `length` more tokens behind each prompt, one by one.

    Returns prompts with answers, [batch, n + length], and the logarithm of the chance of each token
    of the answers, [batch, length].
    """
    past = [Past() for _ in policy.blocks]
    tokens, chances = [prompts], []
    for _ in range(length):
        every = policy(tokens[-1], past)[:, -1].log_softmax(dim=-1)
        drawn = torch.multinomial(every.exp(), 1, generator=generator)
        tokens.append(drawn)
        chances.append(every.gather(1, drawn))
    return torch.cat(tokens, dim=1), torch.cat(chances, dim=1)


def log_chances(policy: nn.Module, tokens: Tensor, length: int) -> Tensor:
    """The logarithm of the chance of each of the last `length` tokens: [batch, length]."""
    logits = policy(tokens[:, :-1])[:, -length:]
    chosen = tokens[:, -length:, None]
    found: Tensor = logits.log_softmax(dim=-1).gather(2, chosen).squeeze(2)
    return found
