"""A reader's copy of a checkpoint in host memory, which follows a publisher: engines load from it.

Changes are bound to the bits that they were made of, and an engine keeps others: its weights are
fused, cut up, quantised, and on devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from sparsewire.errors import Timeout
from sparsewire.weights.readers.end import TIMEOUT_S
from sparsewire.weights.readers.staged import Staged
from sparsewire.weights.receiver import Receiver
from sparsewire.weights.versions.named import as_torch

if TYPE_CHECKING:
    import torch

Weights = Iterator[tuple[str, "torch.Tensor"]]

# For ever: the publisher may have nothing new for days.
_AHEAD_S = 1e9


class HostCopy:
    """The tensors of one version, by their names in the checkpoint. Use it from one thread.

    The next version is fetched and verified as soon as it is published, beside the engine's work.
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
        self._ahead = self._look_ahead()

    def _look_ahead(self) -> Future[Staged]:
        ahead: Future[Staged] = Future()
        Thread(target=_stage_next, args=(self._receiver, ahead), daemon=True).start()
        return ahead

    @property
    def version(self) -> int | None:
        """The version that it is; None before the first."""
        return self._receiver.version

    def advance(self, version: int | None = None, timeout: float = TIMEOUT_S) -> None:
        """Become this version, or a newer one than now; wait for it so many seconds at most.

        Raises what `Receiver.stage` and `Staged.verify` raise; then nothing has changed.
        """
        if version is not None and version == self.version:
            return
        staged = self._staged(version, timeout)
        self._owed |= dict.fromkeys(staged.changed)
        staged.apply()
        self._ahead = self._look_ahead()

    def _staged(self, version: int | None, timeout: float) -> Staged:
        try:
            staged = self._ahead.result(timeout)
        except NotDone:
            what = "a newer version" if version is None else f"version {version}"
            raise Timeout(f"{what} of the weights did not come within {timeout:g} s") from None
        except BaseException:
            # It may be of another version than the one that is asked for.
            if version is not None:
                return self._stage(version, timeout)
            self._ahead = self._look_ahead()
            raise
        if version in (None, staged.version):
            return staged
        return self._stage(version, timeout)

    def _stage(self, version: int | None, timeout: float) -> Staged:
        try:
            return self._receiver.stage(version, timeout).verify()
        except BaseException:
            self._ahead = self._look_ahead()
            raise

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


def _stage_next(receiver: Receiver, ahead: Future[Staged]) -> None:
    try:
        ahead.set_result(receiver.stage(None, _AHEAD_S).verify())
    except BaseException as error:
        ahead.set_exception(error)
