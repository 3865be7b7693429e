"""Weights: a new version of a model for its readers, in the bytes of what changed.

Public names are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsewire.weights.publisher import Published, Publisher
    from sparsewire.weights.readers.staged import Stage, Staged
    from sparsewire.weights.readers.watch import Watch
    from sparsewire.weights.receiver import Receiver
    from sparsewire.weights.shard_receiver import ShardReceiver
    from sparsewire.weights.shards.layout import Layout
    from sparsewire.weights.shards.placements import own_parts
    from sparsewire.weights.shards.places import part
    from sparsewire.weights.shards.views import View
    from sparsewire.weights.versions.named import as_numpy, as_torch

__all__ = [
    "Layout",
    "Published",
    "Publisher",
    "Receiver",
    "ShardReceiver",
    "Stage",
    "Staged",
    "View",
    "Watch",
    "as_numpy",
    "as_torch",
    "own_parts",
    "part",
]

_HOMES = {
    "Layout": "shards.layout",
    "Published": "publisher",
    "Publisher": "publisher",
    "Receiver": "receiver",
    "ShardReceiver": "shard_receiver",
    "Stage": "readers.staged",
    "Staged": "readers.staged",
    "View": "shards.views",
    "Watch": "readers.watch",
    "as_numpy": "versions.named",
    "as_torch": "versions.named",
    "own_parts": "shards.placements",
    "part": "shards.places",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
