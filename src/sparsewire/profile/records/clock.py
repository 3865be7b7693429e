"""Moments of a backward pass: by the host's clock or, of CUDA, by the device's events."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

Moment = Any
"""A point in time, which only the clock that gave it can read."""


class Clock(Protocol):
    def now(self) -> Moment:
        """The moment at which the work that was given so far is done."""

    def seconds(self, begin: Moment, end: Moment) -> float:
        """Seconds between two moments; waits for the later one."""

    def settle(self) -> None:
        """Wait until the device has done all it was given."""


class HostClock:
    def now(self) -> Moment:
        return time.perf_counter()

    def seconds(self, begin: Moment, end: Moment) -> float:
        return float(end - begin)

    def settle(self) -> None:
        """The host is done with what it has returned from."""


class DeviceClock:
    """The host runs ahead of a device, so its time would say nothing."""

    def now(self) -> Moment:
        event: Any = torch.cuda.Event
        event = event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Moment, end: Moment) -> float:
        begin.synchronize()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def settle(self) -> None:
        torch.cuda.synchronize()


def clock_of(device: torch.device) -> Clock:
    """The clock of the device that gradients are on."""
    return DeviceClock() if device.type == "cuda" else HostClock()
