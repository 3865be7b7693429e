"""Training across slow links: each rank trains alone, and all average now and then.

    torchrun --nproc-per-node 2 examples/outer.py
    torchrun --nproc-per-node 2 examples/outer.py sparseloco

The argument is a preset of sparsewire.torch.outer. The loop is that of a training on one rank.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

from sparsewire.torch import outer

FEATURES = 64
WIDTH = 256
BATCH = 64
STEPS = 200


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # Any backend: rounds have connections of their own.
    torch.manual_seed(0)
    true_weights = torch.randn(FEATURES, 1)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.Generator().manual_seed(dist.get_rank())
    preset = sys.argv[1] if len(sys.argv) > 1 else "diloco"

    with outer.preset(preset, model, inner, every=10) as rounds:
        for step in range(STEPS):
            x = torch.randn(BATCH, FEATURES, generator=data)
            loss = nn.functional.mse_loss(model(x), torch.tanh(x @ true_weights))
            inner.zero_grad()
            loss.backward()
            inner.step()  # Every tenth step has a round.
            if dist.get_rank() == 0 and step % 50 == 49:
                print(f"step {step + 1:3}: loss {loss.item():.4f}")
        rounds.sync()
        stats = rounds.stats()
    if dist.get_rank() == 0:
        print(f"{stats['rounds']} rounds, {stats['bytes_up']:,} bytes sent by rank 0")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
