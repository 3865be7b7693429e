"""ResNet152 (He et al., 2016) with torchvision's parameters: many convolutions of like size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsewire.tools.training.workloads.pictures import KINDS, Classifying, batch
from sparsewire.tools.training.workloads.workload import Job, Size

_EXPANSION = 4


@dataclass(frozen=True)
class Shape:
    """Bottlenecks in each of four stages, the first of which has `width` channels inside."""

    blocks: tuple[int, ...]
    width: int
    batch: int
    side: int


SIZES: dict[Size, Shape] = {
    "published": Shape((3, 8, 36, 3), 64, 64, 224),
    "here": Shape((3, 8, 36, 3), 64, 4, 64),
    "tiny": Shape((1, 1, 1, 1), 4, 2, 32),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its pictures. It has no table, so `sparse` is moot."""
    model = Classifying(resnet(shape.blocks, shape.width))
    optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return Job(model, partial(batch, shape.batch, shape.side), optimizer)


def resnet(blocks: Sequence[int], width: int) -> nn.Sequential:
    """The network; with 3, 8, 36, 3 and 64, ResNet152."""
    stem = (nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
    layers: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate(blocks):
        inside = width * 2**stage
        for place in range(count):
            stride = 2 if stage and not place else 1
            layers.append(Bottleneck(inputs, inside, stride))
            inputs = inside * _EXPANSION
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, KINDS))
    network = nn.Sequential(*layers, *head)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network


class Bottleneck(nn.Module):
    """Three convolutions, the second of `inside` channels, beside a way around them."""

    def __init__(self, inputs: int, inside: int, stride: int) -> None:
        super().__init__()
        outputs = inside * _EXPANSION
        self.inner = nn.Sequential(
            *_convolution(inputs, inside, 1, 1),
            nn.ReLU(inplace=True),
            *_convolution(inside, inside, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(inside, outputs, 1, 1),
        )
        changes = inputs != outputs or stride > 1
        around = _convolution(inputs, outputs, 1, stride) if changes else ()
        self.around = nn.Sequential(*around)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.inner(x) + self.around(x))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> tuple[nn.Module, ...]:
    padding = kernel // 2
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return convolution, nn.BatchNorm2d(outputs)
