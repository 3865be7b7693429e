"""The task: write the letters of the prompt backwards. Its reward is computed, place by place."""

from __future__ import annotations

import torch
from torch import Tensor

LETTERS = 10
COUNT = 6
START = LETTERS
VOCABULARY = LETTERS + 1
PROMPT = COUNT + 1
LENGTH = PROMPT + COUNT


def prompts(batch: int, generator: torch.Generator) -> Tensor:
    """Prompts [batch, PROMPT]: letters at random, and the token that asks for the answer."""
    letters = torch.randint(LETTERS, (batch, COUNT), generator=generator)
    return torch.cat([letters, torch.full((batch, 1), START)], dim=1)


def rewards(tokens: Tensor) -> Tensor:
    """The share of each answer's letters that are where they belong: [batch], 0 to 1."""
    wanted = tokens[:, :COUNT].flip(1)
    return (tokens[:, PROMPT:] == wanted).float().mean(dim=1)


def demonstrations(batch: int, generator: torch.Generator) -> Tensor:
    """Prompts with answers to imitate: half of them are right, half repeat the prompt instead."""
    asked = prompts(batch, generator)
    letters = asked[:, :COUNT]
    is_right = torch.rand(batch, 1, generator=generator) < 0.5
    answers = torch.where(is_right, letters.flip(1), letters)
    return torch.cat([asked, answers], dim=1)
