"""Tables with sparse gradients under DistributedDataParallel: only the rows that were used travel.

    torchrun --nproc-per-node 2 examples/sparse_embedding_ddp.py
    torchrun --nproc-per-node 2 examples/sparse_embedding_ddp.py topk

With "topk", of the gradients that are dense only the largest elements are sent, in 4 bits each.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks, stats

TAGS = 100_000
WIDTH = 64
BATCH = 64
TAGS_PER_ITEM = 8
STEPS = 20


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("sparsewire")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.EmbeddingBag(TAGS, WIDTH, sparse=True),
        nn.Linear(WIDTH, 256),
        nn.ReLU(),
        nn.Linear(256, 1),
    )
    true_scores = torch.randn(TAGS)
    ddp = DistributedDataParallel(model)
    if "topk" in sys.argv[1:]:
        ddp.register_comm_hook(hooks.TopKState(), hooks.topk_hook)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(dist.get_rank())
    sent_before = stats()["bytes_sent"]

    for step in range(STEPS):
        # A few popular tags, so that there is something to learn within seconds.
        items = torch.randint(100, (BATCH, TAGS_PER_ITEM), generator=data) * (TAGS // 100)
        loss = nn.functional.mse_loss(ddp(items).squeeze(1), true_scores[items].mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1:2}: loss {loss.item():.4f}")

    if dist.get_rank() == 0:
        sent = (stats()["bytes_sent"] - sent_before) / STEPS
        print(f"sent {sent / 1024:.0f} KiB in a step; the table has {TAGS * WIDTH // 256} KiB")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
