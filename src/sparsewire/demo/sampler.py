"""Draws the negatives of a sampled softmax: frequent tokens more often than rare ones."""

import math

import torch
from torch import Tensor


class LogUniform:
    """The log-uniform distribution over token numbers, which fits tokens numbered by frequency.

    P(k) = log((k + 2) / (k + 1)) / log(vocabulary + 1); tokens are drawn with replacement.
    """

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._log_range = math.log(vocabulary + 1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` token numbers, int64."""
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        tokens = (uniform * self._log_range).exp().long() - 1
        return tokens.clamp_(max=self._vocabulary - 1)

    def log_probability(self, tokens: Tensor) -> Tensor:
        """Return log P of each token, float32."""
        return ((tokens + 2.0) / (tokens + 1.0)).log().div(self._log_range).log()
