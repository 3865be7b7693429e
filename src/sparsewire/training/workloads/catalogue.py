"""The table of the workloads: sizes, published densities, and how they are scaled here."""

from __future__ import annotations

from sparsewire.training.workloads import bert, deeplight, language, ncf, resnet, vgg
from sparsewire.training.workloads.workload import Workload

WORKLOADS = {
    "deeplight": Workload(
        "DeepLight",
        deeplight.SIZES,
        deeplight.make,
        0.0027,
        "1/16 of the rows and of the network's weights, 1/4 of the batch",
    ),
    "lstm": Workload(
        "LSTM",
        language.SIZES,
        language.make,
        0.055,
        "1/8 of the words, of the batch and of the negatives, rows half as wide; 1/15 of the "
        "LSTMs' weights",
    ),
    "ncf": Workload(
        "NCF",
        ncf.SIZES,
        ncf.make,
        0.156,
        "1/8 of the users and films, and a batch that touches the published share of them",
    ),
    "bert": Workload(
        "BERT",
        bert.SIZES,
        bert.make,
        0.907,
        "1/8 of the layers and of the words, texts a twelfth as long",
        needs="transformers",
    ),
    "vgg19": Workload(
        "VGG19",
        vgg.SIZES,
        vgg.make,
        0.68,
        "hidden layers of 1024 units instead of 4096, 8 pictures of 64 x 64",
    ),
    "resnet152": Workload(
        "ResNet152", resnet.SIZES, resnet.make, 0.784, "4 pictures of 64 x 64; all parameters"
    ),
}
"""Densities are from the paper's table of models, as recalled, and not read again."""
