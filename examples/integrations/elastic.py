"""torchrun starts all ranks again when one dies; the script goes on where its checkpoint was made.

    torchrun --nproc-per-node 2 --max-restarts 1 examples/integrations/elastic.py FOLDER
    torchrun --nproc-per-node 2 --max-restarts 1 examples/integrations/elastic.py FOLDER gloo

Rank 1 kills itself half-way in its first life. An empty FOLDER is a new run.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from task import BATCH, LEARNING_RATE, STEPS, data, new_model, show
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIRST_LIFE = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"


def save(checkpoint: Path, state: dict) -> None:
    """Whoever reads it finds the old one or the new one."""
    part = checkpoint.with_suffix(".part")
    torch.save(state, part)
    part.replace(checkpoint)


def main(folder: str, backend: str) -> None:
    dist.init_process_group(backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    checkpoint, model, begin = Path(folder) / "checkpoint.pt", new_model(), 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        begin = state["step"]
        print(f"rank {rank} goes on at step {begin}", flush=True)
    dist.barrier()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    items, scores = data().tensors
    for step in range(begin, STEPS):
        batch = slice(first := (step * ranks + rank) * BATCH, first + BATCH)
        optimizer.zero_grad()
        if FIRST_LIFE and rank == 1 and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        nn.functional.mse_loss(ddp(items[batch]), scores[batch]).backward()
        optimizer.step()
        if rank == 0:
            save(checkpoint, {"model": model.state_dict(), "step": step + 1})
    show(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "sparsewire")
