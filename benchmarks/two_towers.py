"""A recommender that no figure of `sparsewire advise` was fitted to: a training for its check.

    sparsewire lab --hosts 4 -- python benchmarks/two_towers.py --method gloo-sparse

Two towers: users and items have a table each, 200,000 and 100,000 rows of 64 elements, and a small
network on top; a batch's users are to find their items among those of the batch. Adam steps all of
it or, with sparse tables, SparseAdam the tables. Rank 0 prints the median step in seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

USERS, ITEMS, WIDTH, HIDDEN = 200_000, 100_000, 64, 128
BATCH, SEEN = 256, 8
EXPONENT = 1.1
METHODS = ("gloo", "gloo-sparse", "sparsewire", "sparse", "feedback", "diana")
SKIPPED = 3


class Tower(nn.Module):
    """Rows of a table, and what a network makes of their mean."""

    def __init__(self, rows: int, sparse: bool) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(rows, WIDTH, mode="mean", sparse=sparse)
        self.layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, rows: Tensor) -> Tensor:
        made: Tensor = self.layers(self.table(rows))
        return F.normalize(made, dim=1)


class TwoTowers(nn.Module):
    """Gives the loss of a batch of users' histories and items, int64 (batch, rows of each)."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.users, self.items = Tower(USERS, sparse), Tower(ITEMS, sparse)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        scores = self.users(users) @ self.items(items).T
        return F.cross_entropy(20 * scores, torch.arange(len(scores)))


def optimizers(model: nn.Module, sparse: bool) -> Iterator[torch.optim.Optimizer]:
    """Adam of all, or SparseAdam of the tables and Adam of the rest."""
    tables = [p for name, p in model.named_parameters() if "table" in name]
    others = [p for name, p in model.named_parameters() if "table" not in name]
    if sparse:
        yield torch.optim.SparseAdam(tables)
        yield torch.optim.Adam(others)
    else:
        yield torch.optim.Adam([*tables, *others])


def batch(draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """A few rows are popular, most are rare."""
    users = draws.zipf(EXPONENT, (BATCH, SEEN)) * 7919 % USERS
    items = draws.zipf(EXPONENT, (BATCH, SEEN)) * 7907 % ITEMS
    return torch.from_numpy(users), torch.from_numpy(items)


def register(model: DistributedDataParallel, method: str) -> None:
    """The communication hook of a method that has one."""
    if method not in ("feedback", "diana"):
        return
    from sparsewire.torch import hooks

    if method == "feedback":
        state, hook = hooks.ErrorFeedbackState(), hooks.error_feedback_hook
    else:
        state, hook = hooks.DianaState(), hooks.diana_hook
    state.register(model)
    model.register_comm_hook(state, hook)


def train(method: str, steps: int) -> list[float]:
    """The seconds of each step."""
    torch.manual_seed(0)
    sparse = method in ("gloo-sparse", "sparse")
    model = DistributedDataParallel(TwoTowers(sparse))
    register(model, method)
    steppers = list(optimizers(model, sparse))
    draws = np.random.default_rng(dist.get_rank())
    seconds = []
    for users, items in [batch(draws) for _ in range(steps)]:
        begin = time.perf_counter()
        for stepper in steppers:
            stepper.zero_grad()
        model(users, items).backward()
        for stepper in steppers:
            stepper.step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Train with the method that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--method", choices=METHODS, default="gloo")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if given.method.startswith("gloo") else "sparsewire")
    seconds = train(given.method, given.steps)
    if dist.get_rank() == 0:
        print(f"step_s {statistics.median(seconds[SKIPPED:] or seconds)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
