"""Keeps a directory at the publisher's newest version, and tells what each one took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sparsewire.weights.receiver import Receiver


class Pulled(NamedTuple):
    """A version that was applied: bytes that came, elements' bytes in all, and seconds of its
    parts. `pause_s` is the time in which the weights are not whole."""

    version: int
    nbytes: int
    whole_nbytes: int
    messages: int
    is_whole: bool
    stage_s: float
    verify_s: float
    pause_s: float


def pull(receiver: Receiver, version: int | None, timeout: float) -> Pulled:
    """Get and apply `version`, or one newer than what is there; raises what `stage` raises."""
    begin = time.perf_counter()
    staged = receiver.stage(version, timeout)
    stage_s = time.perf_counter() - begin
    verify_s = _seconds(staged.verify)
    pause_s = _seconds(staged.apply)
    way = staged.way
    return Pulled(
        staged.version,
        way.nbytes,
        sum(len(tensor.data) for tensor in receiver.tensors.values()),
        way.messages,
        way.is_whole,
        stage_s,
        verify_s,
        pause_s,
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
