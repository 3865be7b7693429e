"""An ordinary DistributedDataParallel script: the backend's name is the only change.

    torchrun --nproc-per-node 2 examples/ddp.py
    torchrun --nproc-per-node 2 examples/ddp.py gloo

The model scores items by the tags they have, out of many that exist. A batch names few of them, so
most rows of the table's gradient are zero.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TAGS = 20_000
WIDTH = 256
BATCH = 64
TAGS_PER_ITEM = 8
STEPS = 20


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(TAGS, WIDTH), nn.Linear(WIDTH, 1))
    true_scores = torch.randn(TAGS)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(dist.get_rank())

    for step in range(STEPS):
        items = torch.randint(TAGS, (BATCH, TAGS_PER_ITEM), generator=data)
        # Half of the mentions are of a hundred popular tags.
        items[:, ::2] %= 100
        loss = nn.functional.mse_loss(ddp(items).squeeze(1), true_scores[items].mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1:2}: loss {loss.item():.4f}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
