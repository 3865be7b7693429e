"""Measures the speed of staging on this machine: of copies between a device and pinned memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from sparsewire.device.staging import Staging, Way

_BYTES = 4 << 20
_TURNS = 3


class CopySpeeds(NamedTuple):
    """Seconds for each byte copied to the host (down) and to the device (up)."""

    down_s: float
    up_s: float


def measure_copies(staging: Staging) -> CopySpeeds:
    """The best of a few copies of 4 MiB in each direction."""
    on_device = torch.zeros(_BYTES, dtype=torch.uint8, device=staging.device)
    staging.called(on_device).synchronize()
    with staging.down.loan() as loan:
        host = loan.take_like(on_device)
        down = _seconds(staging.down, lambda: _copy(host, on_device))
        up = _seconds(staging.up, lambda: _copy(on_device, host))
    return CopySpeeds(down / _BYTES, up / _BYTES)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def _seconds(way: Way, copy: Callable[[], None]) -> float:
    way.enqueue(copy).synchronize()  # The first copy takes longer.
    taken = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        way.enqueue(copy).synchronize()
        taken.append(time.perf_counter() - begin)
    return min(taken)
