"""The table of the workloads: their sizes, and how these are scaled here."""

from __future__ import annotations

from sparsewire.tools.training.workloads import bert, deeplight, language, ncf, resnet, vgg
from sparsewire.tools.training.workloads.workload import Workload

WORKLOADS = {
    "deeplight": Workload(
        "DeepLight",
        deeplight.SIZES,
        deeplight.make,
        "1/16 of the rows and of the network's weights, 1/4 of the batch",
        has_tables=True,
    ),
    "lstm": Workload(
        "LSTM",
        language.SIZES,
        language.make,
        "1/16 of the words, of the LSTM's weights, of the batch and of the negatives",
        has_tables=True,
    ),
    "ncf": Workload(
        "NCF",
        ncf.SIZES,
        ncf.make,
        "1/8 of the users, of the items and of the batch",
        has_tables=True,
    ),
    "ncf-shared": Workload(
        "NCF, batch of all",
        ncf.SHARED,
        ncf.make,
        "1/8 of the users, of the items and of the batch",
        has_tables=True,
    ),
    "bert": Workload(
        "BERT",
        bert.SIZES,
        bert.make,
        "1/8 of the layers and of the words, texts a twelfth as long",
        needs="transformers",
    ),
    "vgg19": Workload(
        "VGG19",
        vgg.SIZES,
        vgg.make,
        "hidden layers of 1024 units instead of 4096, 8 pictures of 64 x 64",
    ),
    "resnet152": Workload(
        "ResNet152", resnet.SIZES, resnet.make, "4 pictures of 64 x 64; all parameters"
    ),
}
