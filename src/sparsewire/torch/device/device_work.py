"""The handle of a call that the engine serves on tensors of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from sparsewire.torch.calls.futures import Callbacks
from sparsewire.torch.calls.work import EngineWork, Health
from sparsewire.torch.device.device_queue import Handle


class _OnHost:
    """A handle for which only the host waits: once it is there, no stream has to wait for it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.exception = handle.exception

    def wait(self, timeout: float = math.inf) -> None:
        self._handle.arrive(timeout)


class DeviceWork(EngineWork):
    """`wait` blocks until results are on their way back; the caller's stream waits for the rest.

    The work's future completes once results are on the device. Then torch needs no streams to wait
    for them, as its `block_current_stream` does.
    """

    def __init__(
        self,
        handles: Sequence[Handle],
        tensors: Sequence[torch.Tensor],
        callbacks: Callbacks,
        health: Health,
    ) -> None:
        ended: Any = handles  # They stand in for `sparsewire.Work`.
        super().__init__(ended, tensors, callbacks, health)
        arriving: Any = [_OnHost(handle) for handle in handles]
        self._arriving = EngineWork(arriving, tensors, callbacks, health)
        self._devices = handles[0].staging.future_devices

    def _finish(self) -> list[torch.Tensor]:
        self._arriving.wait()
        return self._tensors
