"""What a user gives to be published, of whatever kind, as a publisher takes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from sparsewire.errors import InputError
from sparsewire.sparse_vector import SparseVector
from sparsewire.weights.shards.placements import own_weights
from sparsewire.weights.versions.manifest import Manifest
from sparsewire.weights.versions.named import distinct
from sparsewire.weights.versions.snapshot import SUFFIX, Snapshot
from sparsewire.weights.versions.tensors import Tensor

FILE = "model.safetensors"
"""The name of a file that has none."""

T = TypeVar("T")


class Offer:
    """A version's tensors in order, each to be read once, and its manifest."""

    def __init__(self, weights: Any, mesh: Any = None) -> None:
        """Of tensors that are divided among ranks, those of `mesh`, the parts of this rank.

        Raises InputError for what has no tensors, DataError for files that are none, or for parts
        that cannot be told.
        """
        self.manifest = Manifest()
        self.tensors: Iterator[tuple[str, Tensor | SparseVector]]
        if isinstance(weights, (str, os.PathLike)):
            weights = Snapshot(Path(weights))
        if isinstance(weights, Snapshot):
            self.manifest.headers = {
                name if name.endswith(SUFFIX) else FILE: file.header
                for name, file in weights.files.items()
            }
            self.manifest.texts = weights.texts()
            self.tensors = iter(weights.tensors.items())
        else:
            self.tensors, self.manifest.aliases = distinct(own_weights(weights, mesh))
            if isinstance(weights, Iterator) and mesh is None:
                self.tensors = _some(self.tensors)


def _some(tensors: Iterator[T]) -> Iterator[T]:
    """The same; raises InputError if there are none, lest readers lose all that they have."""
    first = next(tensors, None)
    if first is None:
        raise InputError(
            "the iterator has no tensors: it may have been used up already, so give a new one"
        )
    yield first
    yield from tensors
