"""An LSTM language model trained with a sampled softmax: its text, its negatives, its optimiser.

Both of its tables, one row per token, are large, and a step touches few rows of each. So their
gradients, which PyTorch makes dense, are almost all zeros.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
LENGTH = 20
NEGATIVES = 512
TABLE_RATE = 0.1
LSTM_RATE = 0.005
MAX_LSTM_NORM = 1.0
HELD_OUT = 0.05
HELD_OUT_STEPS = 2

State = tuple[Tensor, Tensor]


class LstmTrainee:
    """Trains on a share of the tokens; `width` is that of the model."""

    def __init__(self, tokens: npt.NDArray[np.int32], seed: int, width: int) -> None:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        vocabulary = int(tokens.max()) + 1
        torch.manual_seed(seed)
        self.model = LanguageModel(vocabulary, width)
        self.ddp = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer: torch.optim.Optimizer = torch.optim.Adagrad(
            [
                {"params": self.model.tables(), "lr": TABLE_RATE},
                {"params": self.model.lstm.parameters(), "lr": LSTM_RATE},
            ],
            initial_accumulator_value=1e-5,
            fused=True,
        )
        split = int(len(tokens) * (1 - HELD_OUT))
        self.training = Batches(tokens[:split], BATCH, LENGTH, rank, world_size)
        self.held_out = Batches(tokens[split:], BATCH, LENGTH, rank, world_size)
        self.sampler = LogUniform(vocabulary)
        self.generator = torch.Generator().manual_seed(seed * world_size + rank)
        self.state: State | None = None

    def step(self, number: int) -> Tensor:
        """Train on one batch; return this rank's loss."""
        inputs, targets = self.training[number]
        negatives = self.sampler.draw(NEGATIVES, self.generator)
        self.optimizer.zero_grad()
        loss: Tensor
        loss, self.state = self.ddp(inputs, targets, negatives, self.state)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.lstm.parameters(), MAX_LSTM_NORM)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def held_out_loss(self) -> Tensor:
        """The exact loss per token on text that is not trained on, of this rank's part."""
        losses, state = [], None
        for number in range(HELD_OUT_STEPS):
            loss, state = self.model.full_loss(*self.held_out[number], state)
            losses.append(loss)
        return torch.stack(losses).mean()


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


class Batches:
    """The part of a text that one rank trains on: `batch` rows, spread over the whole text.

    Every row is read in order, `length` tokens a step, and starts again at its end.
    """

    def __init__(
        self, tokens: npt.NDArray[np.int32], batch: int, length: int, rank: int, world_size: int
    ) -> None:
        stride = len(tokens) // (batch * world_size)
        first = rank * batch
        self._rows = tokens[first * stride : (first + batch) * stride].reshape(batch, stride)
        self._length = length
        self._steps_per_pass = (stride - 1) // length

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        """The inputs and the targets of one step, int64, each (batch, length)."""
        start = step % self._steps_per_pass * self._length
        window = self._rows[:, start : start + self._length + 1]
        tokens = torch.from_numpy(window.astype(np.int64))
        return tokens[:, :-1], tokens[:, 1:]
