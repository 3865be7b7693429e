"""Trains the demo's language model with DistributedDataParallel; one process per rank.

An ordinary script, started by torchrun or anything that sets its variables:

    torchrun --nproc-per-node 4 -m sparsewire.demo.train --backend gloo --tokens tokens.npy

Rank 0 writes one line of JSON per event. The backend's name is all that differs between two runs.
"""

import argparse
import json
import statistics
import time
from dataclasses import asdict
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch  # noqa: F401
from sparsewire.demo.density import Density
from sparsewire.demo.model import LanguageModel, State
from sparsewire.demo.sampler import LogUniform
from sparsewire.demo.streams import Streams
from sparsewire.demo.traffic import Meter, meter

WIDTH = 256
BATCH = 16
LENGTH = 20
NEGATIVES = 512
TABLE_RATE = 0.1
LSTM_RATE = 0.005
MAX_LSTM_NORM = 1.0
HELD_OUT = 0.05
HELD_OUT_STEPS = 2
UNSYNCHRONISED_STEPS = 6


class Trainer:
    """One rank's model, data and optimiser."""

    def __init__(self, tokens: npt.NDArray[np.int32], seed: int, width: int = WIDTH) -> None:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        vocabulary = int(tokens.max()) + 1
        torch.manual_seed(seed)
        self.model = LanguageModel(vocabulary, width)
        self.ddp = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.Adagrad(
            [
                {"params": self.model.tables(), "lr": TABLE_RATE},
                {"params": self.model.lstm.parameters(), "lr": LSTM_RATE},
            ],
            initial_accumulator_value=1e-5,
            fused=True,
        )
        split = int(len(tokens) * (1 - HELD_OUT))
        self.training = Streams(tokens[:split], BATCH, LENGTH, rank, world_size)
        self.held_out = Streams(tokens[split:], BATCH, LENGTH, rank, world_size)
        self.sampler = LogUniform(vocabulary)
        self.generator = torch.Generator().manual_seed(seed * world_size + rank)
        self.state: State | None = None

    def step(self, number: int) -> Tensor:
        """Train on one batch; return this rank's loss."""
        inputs, targets = self.training.batch(number)
        negatives = self.sampler.draw(NEGATIVES, self.generator)
        self.optimizer.zero_grad()
        loss: Tensor
        loss, self.state = self.ddp(inputs, targets, negatives, self.state)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.lstm.parameters(), MAX_LSTM_NORM)
        self.optimizer.step()
        return loss.detach()

    def step_alone(self, number: int) -> None:
        """Do the same work without talking to the other ranks."""
        with self.ddp.no_sync():
            self.step(number)

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Return the exact loss per token on text that is not trained on, over all ranks."""
        losses, state = [], None
        for number in range(HELD_OUT_STEPS):
            loss, state = self.model.full_loss(*self.held_out.batch(number), state)
            losses.append(loss)
        return float(mean_over_ranks(torch.stack(losses)).mean())

    def density(self) -> Density:
        """Measure the gradient that the last step left."""
        return Density.of(p.grad for p in self.model.parameters() if p.grad is not None)


def mean_over_ranks(values: Tensor) -> Tensor:
    """Return the mean of `values` over all ranks, on every rank."""
    dist.all_reduce(values)
    return values / dist.get_world_size()


def report(event: str, **fields: object) -> None:
    """Write one event as a line of JSON, on rank 0 only."""
    if dist.get_rank() == 0:
        print(json.dumps({"event": event, **fields}), flush=True)


def train(trainer: Trainer, steps: int, sent: Meter | None) -> None:
    """Train for `steps` steps; report every step, and in the end what was measured."""
    losses = []
    held_out_before = trainer.held_out_loss()
    sent_before = sent() if sent else 0
    start = time.perf_counter()
    for number in range(steps):
        losses.append(trainer.step(number))
        wall = time.perf_counter() - start
        report("step", number=number, loss=float(losses[-1]), wall_s=wall)
    bytes_sent = torch.tensor(float(sent() - sent_before)) if sent else None
    report(
        "trained",
        losses=mean_over_ranks(torch.stack(losses)).tolist(),
        bytes_per_step=None if bytes_sent is None else float(mean_over_ranks(bytes_sent)) / steps,
        held_out_before=held_out_before,
        held_out_after=trainer.held_out_loss(),
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        density_sum=asdict(trainer.density()),
    )


def measure_alone(trainer: Trainer, steps: int) -> None:
    """Report the time of a step without communication, and the density of one rank's gradient."""
    seconds = []
    for number in range(steps, steps + UNSYNCHRONISED_STEPS):
        dist.barrier()
        start = time.perf_counter()
        trainer.step_alone(number)
        seconds.append(time.perf_counter() - start)
    step_s = statistics.median(seconds)
    report("alone", step_s=step_s, density_rank=asdict(trainer.density()))


def main() -> None:
    """Read the options, join the other ranks, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--interface", help="network interface that only this rank uses")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.backend, timeout=timedelta(minutes=2))
    trainer = Trainer(np.load(options.tokens), options.seed)
    train(trainer, options.steps, meter(options.backend, options.interface))
    measure_alone(trainer, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
