"""Lightning: the backend is an argument of the strategy.

python examples/integrations/lightning_ddp.py
python examples/integrations/lightning_ddp.py gloo
"""

import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from task import BATCH, LEARNING_RATE, data, new_model, show
from torch import nn
from torch.utils.data import DataLoader


class Scores(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = new_model()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        items, scores = batch
        return nn.functional.mse_loss(self.model(items), scores)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), LEARNING_RATE)

    def on_fit_end(self) -> None:
        show(self.model)


def main(backend: str) -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Scores(), DataLoader(data(), BATCH))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sparsewire")
