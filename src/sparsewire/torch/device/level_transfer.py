"""A tensor that each host reduces first: the transfer of a slice, between two steps on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sparsewire.device.accelerator import Event
from sparsewire.device.staging import Staging
from sparsewire.device.transfer import Transfer
from sparsewire.torch.device.host_level import HostLevel

Make = Callable[[Staging, torch.Tensor], Transfer]


class LevelTransfer(Transfer):
    """`make` returns the transfer of this rank's slice. With `averages`, the engine takes the mean
    over hosts, and the slice is divided here by the number of ranks of a host.
    """

    def __init__(
        self, staging: Staging, tensor: torch.Tensor, level: HostLevel, make: Make, averages: bool
    ) -> None:
        super().__init__(staging, tensor)
        self._level = level
        self._make = make
        self._averages = averages
        self._slice: Transfer | None = None

    def send(self) -> torch.Tensor:
        with torch.inference_mode(self.tensor.is_inference()):
            own = self.staging.down.run(lambda: self._level.reduce_scatter(self.tensor.data))
        self.staging.up.hold(own)
        self._slice = self._make(self.staging, own)
        on_host = self._slice.send()
        self.arguments = self._slice.arguments
        return on_host

    def receive(self, result: Any) -> Event:
        assert self._slice is not None, "it was sent"
        self._slice.receive(result)
        self.staging.up.run(self._finish)
        return self.staging.up.record()

    def drop(self) -> None:
        if self._slice is not None:
            self._slice.drop()

    def _finish(self) -> None:
        assert self._slice is not None
        own = self._slice.tensor
        with torch.inference_mode(self.tensor.is_inference()):
            if self._averages:
                own.div_(self._level.layout.places)
            self._level.all_gather(own, self.tensor.data)
