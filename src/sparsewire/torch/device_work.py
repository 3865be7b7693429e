"""The handle of a call that the engine serves on tensors of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sparsewire.torch.device_queue import Handle
from sparsewire.torch.futures import Callbacks
from sparsewire.torch.work import EngineWork, Health


class DeviceWork(EngineWork):
    """`wait` blocks until results are on their way back; the caller's stream waits for the rest.

    Its future completes once they are there: then torch may do without streams, as its
    `block_current_stream` does.
    """

    def __init__(
        self,
        handles: Sequence[Handle],
        tensors: Sequence[torch.Tensor],
        callbacks: Callbacks,
        health: Health,
    ) -> None:
        ended: Any = handles  # They stand for `sparsewire.Work`.
        super().__init__(ended, tensors, callbacks, health)
        self._handles = handles
        self._devices = handles[0].staging.future_devices

    def _finish(self) -> list[torch.Tensor]:
        tensors = super()._finish()
        for handle in self._handles:
            handle.arrive()
        return tensors
