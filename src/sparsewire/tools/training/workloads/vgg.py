"""VGG19 (Simonyan and Zisserman, 2015) with torchvision's parameters: most in one matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from sparsewire.tools.training.workloads.pictures import KINDS, Classifying, batch
from sparsewire.tools.training.workloads.workload import Job, Size

_STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
"""Convolutions and their channels, between one halving of the picture and the next."""
_GRID = 7


@dataclass(frozen=True)
class Shape:
    """Channels are divided by `narrow`; two layers of `hidden` units follow them."""

    narrow: int
    hidden: int
    batch: int
    side: int


SIZES: dict[Size, Shape] = {
    "published": Shape(1, 4096, 64, 224),
    "here": Shape(1, 1024, 8, 64),
    "tiny": Shape(16, 32, 2, 32),
}


def make(shape: Shape, sparse: bool) -> Job:
    """A model with its pictures. It has no table, so `sparse` is moot."""
    model = Classifying(vgg19(shape.narrow, shape.hidden))
    optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return Job(model, partial(batch, shape.batch, shape.side), optimizer)


def vgg19(narrow: int, hidden: int) -> nn.Sequential:
    """The network; with 1 and 4096, the published one."""
    layers: list[nn.Module] = []
    inputs = 3
    for convolutions, channels in _STAGES:
        outputs = channels // narrow
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(_GRID), nn.Flatten()]
    for width in (inputs * _GRID**2, hidden):
        layers += [nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Dropout()]
    network = nn.Sequential(*layers, nn.Linear(hidden, KINDS))
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network
