"""Accelerate: on the CPU it makes groups of gloo alone, and takes one that is there already.

Its launcher starts several processes where it is told `--multi_gpu`, on the CPU too.

    accelerate launch --multi_gpu --num_processes 2 examples/integrations/accelerate_ddp.py
    accelerate launch --multi_gpu --num_processes 2 examples/integrations/accelerate_ddp.py gloo

Without a change to the script, `gloo` stands for one that knows nothing of sparsewire:

    SPARSEWIRE_INSTEAD_OF=gloo accelerate launch --multi_gpu --num_processes 2 \
        examples/integrations/accelerate_ddp.py gloo
"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from torch.utils.data import DataLoader


def main(backend: str) -> None:
    if backend != "gloo":
        dist.init_process_group(backend)  # The one line.
    accelerator = Accelerator(cpu=True)
    model = new_model()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), LEARNING_RATE), DataLoader(data(), BATCH)
    )
    for items, scores in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(items), scores))
        optimizer.step()
    show(accelerator.unwrap_model(model))
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
