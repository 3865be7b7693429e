"""A training to check `sparsewire advise` with: an embedding of words by Zipf's law, and layers.

python benchmarks/advise_workload.py METHOD    # gloo, sparsewire or feedback; under a launcher

Rank 0 prints a line of JSON with the median step. It is what `advise_check.py` asks of workloads.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sparsewire.torch
from sparsewire.torch import hooks

WORDS, WIDTH, HIDDEN, BATCH, LENGTH = 50_000, 128, 1024, 32, 16
STEPS = int(os.environ.get("ADVISE_STEPS", "30"))
WARMUP = 5


class Model(nn.Module):
    """Predicts a word's class from the sum of some before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, mode="sum")
        self.layers = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU()
        )
        self.out = nn.Linear(HIDDEN, 64)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, 64), of words, (batch, length)."""
        out: torch.Tensor = self.out(self.layers(self.words(words)))
        return out


def words(generator: torch.Generator) -> torch.Tensor:
    """A batch of word numbers: P(k) falls like 1/k."""
    draws = torch.rand(BATCH, LENGTH, generator=generator)
    return (WORDS**draws).long().clamp_(max=WORDS - 1)


def main() -> None:
    """Train, and tell what a step takes."""
    method = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if method == "gloo" else "sparsewire")
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(WIDTH), gradient_as_bucket_view=True)
    if method == "feedback":
        state = hooks.ErrorFeedbackState(compressor="block-top-k:0.01")
        state.register(model)
        model.register_comm_hook(state, hooks.error_feedback_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(dist.get_rank())
    seconds = []
    for _ in range(WARMUP + STEPS):
        begin = time.perf_counter()
        optimizer.zero_grad()
        logits = model(words(generator))
        nn.functional.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.long)).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        sent = sparsewire.torch.stats()["bytes_sent"] if method != "gloo" else None
        told = {"step_s": statistics.median(seconds[WARMUP:]), "sent_bytes": sent}
        print(json.dumps(told), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
