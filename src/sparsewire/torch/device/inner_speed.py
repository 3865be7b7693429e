"""The speed of a group's inner backend, for the choice between this backend and the engine."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch

from sparsewire.device.accelerator import ACCELERATORS

_BYTES = 8 << 20
_SMALL_BYTES = 4
_TURNS = 3


class InnerSpeed(NamedTuple):
    """Seconds of a small all_reduce, and of each further byte; infinite without a backend."""

    latency_s: float = 0.0
    byte_s: float = float("inf")


def measure(backend: Any, device: torch.device) -> InnerSpeed:
    """The speed by the best of a few calls of 4 bytes, and of 8 MiB; collective."""
    latency = _seconds(backend, torch.zeros(_SMALL_BYTES // 4, device=device))
    whole = _seconds(backend, torch.zeros(_BYTES // 4, device=device))
    return InnerSpeed(latency, max(0.0, whole - latency) / _BYTES)


def _seconds(backend: Any, tensor: torch.Tensor) -> float:
    _all_reduce(backend, tensor)  # The first call connects.
    taken = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        _all_reduce(backend, tensor)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def _all_reduce(backend: Any, tensor: torch.Tensor) -> None:
    backend.allreduce([tensor]).wait()
    accelerator = ACCELERATORS[tensor.device.type]
    accelerator.record(accelerator.current(tensor.device)).synchronize()
