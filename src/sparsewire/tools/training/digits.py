"""A small convolutional network that reads scikit-learn's digits, 1797 images of 8 x 8 pixels.

So few images are soon known by heart. They are shifted and covered with noise anew in every step,
so that training ends well above zero.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

SIDE = 8
HIDDEN = 512
BATCH = 16
RATE = 0.02
MOMENTUM = 0.9
NOISE = 0.4
"""Standard deviation of the noise; pixels are 0 to 1."""
HELD_OUT = 357
HELD_OUT_VIEWS = 16


def network() -> nn.Sequential:
    """Two convolutions and three full layers: half a million parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 2) ** 2, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, 10),
    )


class DigitsTrainee:
    """One rank's network, images and optimiser: SGD with momentum."""

    def __init__(self, seed: int) -> None:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        self.ddp = DistributedDataParallel(network(), gradient_as_bucket_view=True)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.ddp.parameters(), lr=RATE, momentum=MOMENTUM, fused=True
        )
        images, labels = _digits()
        self._images = images[HELD_OUT + rank :: world_size]
        self._labels = labels[HELD_OUT + rank :: world_size]
        self._generator = torch.Generator().manual_seed(seed * world_size + rank)
        # Every averaging and seed has the same views of the same images.
        views = torch.Generator().manual_seed(0)
        self._held_out = distorted(images[:HELD_OUT].repeat(HELD_OUT_VIEWS, 1, 1, 1), views)
        self._held_out_labels = labels[:HELD_OUT].repeat(HELD_OUT_VIEWS)

    def step(self, number: int) -> Tensor:
        """Train on one batch; return this rank's loss."""
        chosen = torch.randint(len(self._images), (BATCH,), generator=self._generator)
        batch = distorted(self._images[chosen], self._generator)
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.ddp(batch), self._labels[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def held_out_loss(self) -> Tensor:
        """The loss on images that are not trained on; the same on all ranks."""
        return F.cross_entropy(self.ddp.module(self._held_out), self._held_out_labels)


def distorted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images, shape (n, 1, 8, 8), shifted by up to one pixel each way, with noise on all pixels."""
    count = len(images)
    corners = torch.randint(3, (2, count, 1), generator=generator) + torch.arange(SIDE)
    rows, columns = corners[0, :, :, None], corners[1, :, None, :]
    padded = F.pad(images, (1, 1, 1, 1))
    shifted = padded[torch.arange(count)[:, None, None], 0, rows, columns][:, None]
    return shifted + NOISE * torch.randn(shifted.shape, generator=generator)


def _digits() -> tuple[Tensor, Tensor]:
    """Images, shape (1797, 1, 8, 8), pixels 0 to 1, and labels, in a fixed random order."""
    data, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data, dtype=torch.float32).view(-1, 1, SIDE, SIDE) / data.max()
    return images[order], torch.tensor(labels)[order]
