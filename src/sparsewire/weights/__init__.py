"""Weights: a new version of a model for its readers, in the bytes of what changed.

Public names are imported at their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsewire.weights.named import as_numpy, as_torch
    from sparsewire.weights.publisher import Published, Publisher
    from sparsewire.weights.receiver import Receiver, Watch
    from sparsewire.weights.staged import Stage, Staged

__all__ = [
    "Published",
    "Publisher",
    "Receiver",
    "Stage",
    "Staged",
    "Watch",
    "as_numpy",
    "as_torch",
]

_HOMES = {
    "Published": "publisher",
    "Publisher": "publisher",
    "Receiver": "receiver",
    "Stage": "staged",
    "Staged": "staged",
    "Watch": "receiver",
    "as_numpy": "named",
    "as_torch": "named",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
