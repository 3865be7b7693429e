"""Keeps a directory at the publisher's newest version, and tells what each one took."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire.weights.readers.staged import Seconds, Way
from sparsewire.weights.receiver import Receiver


class Pulled(NamedTuple):
    """A version that was applied: how it came, what its parts took, and bytes of all elements.

    While `seconds.applying` passes, the weights are not whole.
    """

    version: int
    way: Way
    seconds: Seconds
    nbytes: int


def pull(receiver: Receiver, version: int | None, timeout: float) -> Pulled:
    """Get and apply `version`, or one newer than what is there; raises what `stage` raises."""
    staged = receiver.stage(version, timeout).apply()
    nbytes = sum(len(tensor.data) for tensor in receiver.tensors.values())
    return Pulled(staged.version, staged.way, staged.seconds, nbytes)
