"""An LSTM language model trained with a sampled softmax, and how its negatives are drawn.

Both of its tables, one row per token, are large, and a step touches few rows of each. So their
gradients, which PyTorch makes dense, are almost all zeros.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = tuple[Tensor, Tensor]


class LanguageModel(nn.Module):
    """Predicts the next token; `width` is the size of embeddings and hidden state alike."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.inputs = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.outputs = nn.Embedding(vocabulary, width)
        self.biases = nn.Embedding(vocabulary, 1)
        self._sampler = LogUniform(vocabulary)
        nn.init.normal_(self.inputs.weight, std=0.1)
        nn.init.normal_(self.outputs.weight, std=width**-0.5)
        nn.init.zeros_(self.biases.weight)

    def tables(self) -> list[Tensor]:
        """Return the parameters that have a row per token."""
        return [self.inputs.weight, self.outputs.weight, self.biases.weight]

    def forward(
        self, inputs: Tensor, targets: Tensor, negatives: Tensor, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Return the mean sampled-softmax loss of a batch, and the state to continue from.

        `inputs` and `targets` are (batch, length); `negatives`, which come from the log-uniform
        distribution, are (count,) and shared by the whole batch.
        """
        hidden, state = self.lstm(self.inputs(inputs), state)
        loss = self._sampled_loss(hidden.flatten(0, 1), targets.flatten(), negatives)
        return loss, (state[0].detach(), state[1].detach())

    def full_loss(
        self, inputs: Tensor, targets: Tensor, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Like `forward`, with the exact softmax over the whole vocabulary."""
        hidden, state = self.lstm(self.inputs(inputs), state)
        biases = self.biases.weight.squeeze(1)
        logits = F.linear(hidden.flatten(0, 1), self.outputs.weight, biases)
        return F.cross_entropy(logits, targets.flatten()), state

    def _sampled_loss(self, hidden: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        # One look-up for both, because each one costs a dense gradient of the table's size.
        tokens = torch.cat([targets, negatives])
        rows, biases = self.outputs(tokens), self.biases(tokens).squeeze(1)
        count = len(targets)
        positive = (hidden * rows[:count]).sum(1) + biases[:count]
        # Each negative stands for as many tokens as it takes to draw it once, so that the sum in
        # the softmax is that over the whole vocabulary, on average.
        correction = self._sampler.log_probability(negatives) + math.log(len(negatives))
        negative = torch.addmm(biases[count:] - correction, hidden, rows[count:].T)
        negative = negative.masked_fill(targets[:, None] == negatives, float("-inf"))
        logits = torch.cat([positive[:, None], negative], dim=1)
        return F.cross_entropy(logits, torch.zeros_like(targets))


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
