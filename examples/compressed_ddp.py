"""DistributedDataParallel with compressed gradients, on any backend: error feedback, or DIANA.

torchrun --nproc-per-node 2 examples/compressed_ddp.py
torchrun --nproc-per-node 2 examples/compressed_ddp.py diana gloo
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks

FEATURES = 512
BATCH = 64
STEPS = 20


def add_hook(ddp: DistributedDataParallel, name: str) -> None:
    if name == "diana":
        ddp.register_comm_hook(hooks.DianaState(compressor="qsgd:7"), hooks.diana_hook)
    else:
        # Two dense steps at the start, then 5% of the blocks of 64 elements.
        state = hooks.ErrorFeedbackState(compressor="block-top-k:0.05:64", warmup_steps=2)
        ddp.register_comm_hook(state, hooks.error_feedback_hook)


def main() -> None:
    torch.set_num_threads(1)
    name, backend = [*sys.argv[1:], *["feedback", "sparsewire"][len(sys.argv) - 1 :]]
    dist.init_process_group(backend)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 1))
    truth = torch.randn(FEATURES) / FEATURES**0.5
    ddp = DistributedDataParallel(model)
    add_hook(ddp, name)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank())

    for step in range(STEPS):
        batch = torch.randn(BATCH, FEATURES, generator=data)
        loss = nn.functional.mse_loss(ddp(batch).squeeze(1), batch @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1:2}: loss {loss.item():.4f}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
