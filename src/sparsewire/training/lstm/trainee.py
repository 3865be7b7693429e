"""One rank's language model with its text, its negatives and its optimiser: Adagrad."""

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.training.lstm.batches import Batches
from sparsewire.training.lstm.model import LanguageModel, LogUniform, State

BATCH = 16
LENGTH = 20
NEGATIVES = 512
TABLE_RATE = 0.1
LSTM_RATE = 0.005
MAX_LSTM_NORM = 1.0
HELD_OUT = 0.05
HELD_OUT_STEPS = 2


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
