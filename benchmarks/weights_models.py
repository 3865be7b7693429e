"""Models for benchmarks/weights_training.py: a GPT that AdamW trains, and a recommender by Adagrad.

Both keep float32 masters. `bits()` gives what a reader would be sent: tensors of bits by name.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sparsewire.tools.training.outer.gpt import Block, Shape

Version = dict[str, NDArray[Any]]

LAYERS, HEADS, WIDTH, CONTEXT, BYTES = 6, 6, 384, 64, 256
BATCH = 8
SHAPE = Shape(LAYERS, WIDTH, HEADS, CONTEXT, BATCH)
BETAS = (0.9, 0.95)
CLIP = 1.0
PEAK_RATE, LAST_SHARE, RISING = 1e-3, 0.1, 50
SAMPLES = 8

USERS, ITEMS, FACTORS, HIDDEN, TRUE_FACTORS = 60_000, 90_000, 64, 64, 8
RATINGS = 1024
ADAGRAD_RATE = 0.05
ZIPF = 1.05


class Training(Protocol):
    """A model that learns, step by step."""

    def step(self) -> None:
        """Train on a batch."""

    def bits(self) -> Version:
        """The tensors of the version that stands now, as bits in one dimension; copies."""


def bits_of(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Version:
    """Copies of the tensors in this dtype, bfloat16 or float32, as bits."""
    words = torch.int16 if dtype == torch.bfloat16 else torch.int32
    kept = ((name, each.detach().to(dtype).flatten().clone()) for name, each in tensors)
    unsigned = f"u{words.itemsize}"
    return {name: each.view(words).numpy().view(unsigned) for name, each in kept}


def text(data: Path | None) -> Tensor:
    """Bytes to learn: tinyshakespeare, or words drawn by a Zipf law, int64 (bytes,)."""
    file = data / "tinyshakespeare.txt" if data else None
    if file and file.exists():
        read = file.read_bytes()
    else:
        draws = random.Random(0)
        words = ["".join(draws.choices("etaoinshrdlu", k=draws.randint(2, 8))) for _ in range(2000)]
        shares = [1 / rank for rank in range(1, len(words) + 1)]
        read = " ".join(draws.choices(words, shares, k=200_000)).encode()
    return torch.from_numpy(np.frombuffer(read, np.uint8).astype(np.int64))


class GPT(nn.Module):
    """Bytes int64 (batch, CONTEXT) to scores of the next one (batch, CONTEXT, BYTES)."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block(SHAPE) for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, read: Tensor) -> Tensor:
        found = self.last(self.blocks(self.bytes(read) + self.places.weight))
        return F.linear(found, self.bytes.weight)


def next_byte_loss(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


def policy_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """A policy gradient: of several bytes drawn at each place, the right ones are rewarded.

    Advantages are rewards less their mean, over their deviation, place by place, as GRPO has it.
    """
    chances = F.log_softmax(scores.float(), -1).flatten(0, 1)
    drawn = torch.multinomial(chances.detach().exp(), SAMPLES, replacement=True)
    rewards = (drawn == targets.reshape(-1, 1)).float()
    spread = rewards.std(1, keepdim=True) + 1e-4
    advantages = (rewards - rewards.mean(1, keepdim=True)) / spread
    return -(advantages * chances.gather(1, drawn)).mean()


class GPTTraining:
    """A GPT in bfloat16 whose float32 masters AdamW steps."""

    def __init__(self, learned: Tensor) -> None:
        self.learned, self.loss = learned, next_byte_loss
        self.model = GPT()
        self.masters = [each.detach().clone() for each in self.model.parameters()]
        self.model.bfloat16()
        self.new_optimizer()

    def new_optimizer(self) -> None:
        self.optimizer = torch.optim.AdamW(self.masters, PEAK_RATE, BETAS, fused=True)

    def use_rate(self, rate: float) -> None:
        """Step at this rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def warm_up(self, steps: int) -> None:
        """Train at a usual rate: it rises, and then falls in a line to a tenth."""
        for step in range(steps):
            rising = min(1.0, (step + 1) / RISING)
            self.use_rate(PEAK_RATE * min(rising, 1 - (1 - LAST_SHARE) * step / steps))
            self.step()

    def step(self) -> None:
        starts = torch.randint(len(self.learned) - CONTEXT, (BATCH, 1))
        read = self.learned[starts + torch.arange(CONTEXT + 1)]
        loss = self.loss(self.model(read[:, :-1]), read[:, 1:])
        loss.backward()
        self.last_loss = loss.item()
        self._update()

    @torch.no_grad()
    def _update(self) -> None:
        for master, own in zip(self.masters, self.model.parameters(), strict=True):
            master.grad = own.grad.float() if own.grad is not None else None
        nn.utils.clip_grad_norm_(self.masters, CLIP)
        self.optimizer.step()
        for master, own in zip(self.masters, self.model.parameters(), strict=True):
            own.copy_(master)
            own.grad = None

    def bits(self) -> Version:
        return bits_of(self.model.named_parameters(), torch.bfloat16)


class Recommender(nn.Module):
    """Scores of users and items, int64 (batch,) each, from tables and a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, FACTORS, sparse=True)
        self.items = nn.Embedding(ITEMS, FACTORS, sparse=True)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)
        self.network = nn.Sequential(
            nn.Linear(2 * FACTORS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        left, right = self.users(users), self.items(items)
        scores: Tensor = self.network(torch.cat([left, right], 1)).squeeze(1)
        return scores + (left * right).sum(1)


class Popularity:
    """Draws of rows by a Zipf law; which rows are popular is no matter of their numbers."""

    def __init__(self, rows: int) -> None:
        self.rows = torch.randperm(rows)
        self.reached = (torch.arange(1, rows + 1, dtype=torch.float64) ** -ZIPF).cumsum(0)

    def draw(self, count: int) -> Tensor:
        at = torch.rand(count, dtype=torch.float64) * self.reached[-1]
        return self.rows[torch.searchsorted(self.reached, at)]


class RecommenderTraining:
    """A recommender whose clicks come from hidden factors; readers take it in this dtype."""

    def __init__(self) -> None:
        # Torch warns where nobody says this.
        torch.sparse.check_sparse_tensor_invariants.disable()
        self.dtype = torch.float32
        self.model = Recommender()
        self.popular = Popularity(USERS), Popularity(ITEMS)
        self.true = torch.randn(USERS, TRUE_FACTORS), torch.randn(ITEMS, TRUE_FACTORS)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), ADAGRAD_RATE)

    def warm_up(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        users, items = (rows.draw(RATINGS) for rows in self.popular)
        liking = (self.true[0][users] * self.true[1][items]).sum(1) / TRUE_FACTORS**0.5
        clicks = torch.bernoulli(torch.sigmoid(liking))
        self.optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(self.model(users, items), clicks)
        loss.backward()
        self.optimizer.step()
        self.last_loss = loss.item()

    def bits(self) -> Version:
        return bits_of(self.model.named_parameters(), self.dtype)
