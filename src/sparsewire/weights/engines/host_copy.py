"""A reader's copy of a checkpoint in host memory, which follows a publisher: engines load from it.

Changes are bound to the bits that they were made of, and an engine keeps others: its weights are
fused, cut up, quantised, and on devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparsewire.weights.named import as_torch
from sparsewire.weights.receiver import Receiver

if TYPE_CHECKING:
    import torch

Weights = Iterator[tuple[str, "torch.Tensor"]]


class HostCopy:
    """The tensors of one version, by their names in the checkpoint. Use it from one thread.

    What changed is owed to the engine until it has loaded all of it. So an engine gets the first
    version whole, whatever it began with, and one that failed half way gets again what it missed.
    """

    def __init__(self, address: str, checkpoint: Path | str | None = None) -> None:
        """Follow the publisher at `address`, "host:port".

        `checkpoint` is what the engine was loaded from: a file of safetensors, or a directory. If
        the publisher knows its bits, only what changed comes; without one the first version comes
        whole. Raises what Receiver raises.
        """
        self._receiver = Receiver(address, checkpoint)
        self._owed = dict.fromkeys(self._receiver.tensors)

    @property
    def version(self) -> int | None:
        """The version that it is; None before the first."""
        return self._receiver.version

    def advance(self, version: int | None = None, timeout: float | None = None) -> None:
        """Become this version, or a newer one than now, which may take `timeout` seconds.

        Raises what `Receiver.stage` and `Staged.verify` raise; then nothing has changed.
        """
        staged = self._receiver.stage(version, timeout).verify()
        self._owed |= dict.fromkeys(staged.changed)
        staged.apply()

    @property
    def is_owing(self) -> bool:
        """Whether the engine lacks something of this version."""
        return bool(self._owed)

    def owed(self) -> Weights:
        """The tensors that the engine lacks, as views of this copy."""
        return self._views(self._owed)

    def all(self) -> Weights:
        """All tensors, as views of this copy."""
        return self._views(self._receiver.tensors)

    def _views(self, names: Iterable[str]) -> Weights:
        tensors = self._receiver.tensors
        return ((name, as_torch(tensors[name])) for name in tuple(names) if name in tensors)

    def settle(self) -> None:
        """The engine has loaded all that was owed."""
        self._owed.clear()

    def close(self) -> None:
        """Leave the publisher."""
        self._receiver.close()
