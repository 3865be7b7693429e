"""What one process does with the machine to itself: the checkpoint to start from, and steps timed.

Trainings begin where another one is under way, as DiLoCo's do (arXiv 2311.08105): what replicas
learn apart in the first steps of all fits together badly, whatever averages it.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.training.outer.gpt import GPT
from sparsewire.tools.training.outer.method import CLIP, adamw, rising
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting, read
from sparsewire.tools.training.outer.text import Text

PRETRAIN, TIME = "pretrain", "time"
BATCHES = 4
"""Batches of a replica in one step of the pretraining."""


def pretrain(setting: Setting, order: Order, tell: Tell) -> None:
    """Train at a constant rate after its rise, and leave the parameters where the setting says."""
    text = Text.of(setting)
    torch.manual_seed(order.seed)
    model = GPT(text.vocabulary, setting.shape)
    (optimizer,) = adamw(model, order.rate)
    draws = np.random.default_rng(order.seed)
    for step in range(order.steps):
        optimizer.param_groups[0]["lr"] = order.rate * rising(step)
        optimizer.zero_grad()
        loss = model(*text.draw(BATCHES * setting.shape.batch, draws))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        tell("step", done=step + 1, loss=loss.item())
    np.save(setting.start, parameters_to_vector(model.parameters()).detach().numpy())


def time_steps(setting: Setting, order: Order, tell: Tell) -> None:
    """Time steps of a method that averages nothing: the median over the steps of the order."""
    text, draws, seconds = Text.of(setting), np.random.default_rng(order.seed), []
    model = GPT(text.vocabulary, setting.shape)
    optimizers = METHODS[order.method].inner(model, order.rate)
    for _ in range(order.steps):
        batch = text.draw(setting.shape.batch, draws)
        start = time.perf_counter()
        model.zero_grad()
        model(*batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for optimizer in optimizers:
            optimizer.step()
        seconds.append(time.perf_counter() - start)
    tell("timed", seconds=median(seconds))


def main() -> None:
    """Do what the first argument says."""
    tell = claim_stdout()
    setting, (order,) = read(sys.argv[2])
    torch.set_num_threads(1)
    {PRETRAIN: pretrain, TIME: time_steps}[sys.argv[1]](setting, order, tell)


if __name__ == "__main__":
    main()
