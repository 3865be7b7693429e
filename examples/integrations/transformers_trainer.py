"""Hugging Face's Trainer: as Accelerate, on which it stands, it takes a group that is there.

    torchrun --nproc-per-node 2 examples/integrations/transformers_trainer.py
    torchrun --nproc-per-node 2 examples/integrations/transformers_trainer.py gloo

Without a change to the script, `gloo` stands for one that knows nothing of sparsewire:

    SPARSEWIRE_INSTEAD_OF=gloo torchrun --nproc-per-node 2 \
        examples/integrations/transformers_trainer.py gloo
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from transformers import Trainer, TrainingArguments


class Scores(nn.Module):
    """Gives what a Trainer asks of a model: the loss first."""

    def __init__(self) -> None:
        super().__init__()
        self.model = new_model()

    def forward(self, items: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.model(items)
        return {"loss": nn.functional.mse_loss(scores, labels), "scores": scores}


def main(backend: str) -> None:
    if backend != "gloo":
        dist.init_process_group(backend)  # The one line.
    model = Scores()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            learning_rate=LEARNING_RATE,
            optim="sgd",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        rows = [{"items": items, "labels": scores} for items, scores in data()]
        Trainer(model, arguments, train_dataset=rows).train()
    show(model.model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
