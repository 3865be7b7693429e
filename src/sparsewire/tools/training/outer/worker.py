"""Trains by one order after another; one process per rank, told by JSON.

Each training has process groups of its own, as if it ran alone. Rank 0 tells everything.
"""

from __future__ import annotations

import sys
from functools import partial

import torch

import sparsewire.torch  # noqa: F401  (makes the backend)
from sparsewire.tools.experiment.crew import Tell, claim_stdout
from sparsewire.tools.training.outer.methods import METHODS
from sparsewire.tools.training.outer.order import Order, Setting, read
from sparsewire.tools.training.outer.trainee import Trainee
from sparsewire.tools.training.workloads.worker import group, joined_store


def run(setting: Setting, orders: list[Order], tell: Tell) -> None:
    """Do everything that was ordered; collective."""
    store = joined_store(setting.timeout_s)
    for number, order in enumerate(orders):
        with group(METHODS[order.method].backend, f"{number}", store, setting.timeout_s):
            told = Trainee(setting, order).train(partial(_tell_step, tell, number))
            tell("trained", order=number, **told)


def _tell_step(tell: Tell, number: int, done: int) -> None:
    tell("step", order=number, done=done)


def main() -> None:
    """Join the other ranks, and train."""
    tell = claim_stdout()
    setting, orders = read(sys.argv[1])
    torch.set_num_threads(1)
    run(setting, orders, tell)


if __name__ == "__main__":
    main()
