"""What one device needs to send from and to receive into: two streams, and pinned memory for each.

Down is from the device to the host, up is back. The two ways share nothing, so that neither waits
for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property

import torch

from sparsewire.device.accelerator import ACCELERATORS, Accelerator, Event, Stream, T
from sparsewire.device.pinned import PinnedPool


class Way:
    """One direction: a stream that the copies run in, and the host memory that they use."""

    def __init__(self, accelerator: Accelerator, device: torch.device) -> None:
        self._accelerator = accelerator
        self._stream: Stream = accelerator.make_stream(device)
        self.pool = PinnedPool(accelerator.pinned)

    def follow(self, event: Event) -> None:
        """Run what comes now after the event."""
        self._accelerator.wait(self._stream, event)

    def hold(self, *tensors: torch.Tensor) -> None:
        """Keep the memory of tensors of other streams until this way is done with it."""
        for tensor in tensors:
            if tensor.numel():
                self._accelerator.hold(tensor, self._stream)

    def run(self, work: Callable[[], T]) -> T:
        return self._accelerator.run(self._stream, work)

    def enqueue(self, work: Callable[[], None]) -> Event:
        """Have `work` done some time, and tell when."""
        self._accelerator.enqueue(self._stream, work)
        return self.record()

    def record(self) -> Event:
        return self._accelerator.record(self._stream)


class Staging:
    """Both ways of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.accelerator = ACCELERATORS[device.type]
        self.down = Way(self.accelerator, device)
        self.up = Way(self.accelerator, device)

    def follow_caller(self, *tensors: torch.Tensor) -> None:
        """Read tensors only after what the caller has enqueued, and free none too early."""
        event = self.accelerator.record(self.accelerator.current(self.device))
        for way in (self.down, self.up):
            way.follow(event)
            way.hold(*tensors)

    def lead_caller(self, event: Event, *made: torch.Tensor) -> None:
        """Have what the caller enqueues from now on come after `event`, and use what was `made`."""
        current = self.accelerator.current(self.device)
        self.accelerator.wait(current, event)
        for tensor in made:
            self.accelerator.hold(tensor, current)

    @cached_property
    def future_devices(self) -> list[torch.device]:
        """Devices whose streams torch's futures have to follow."""
        return self.accelerator.future_devices(self.device)


_making = threading.Lock()
_stagings: dict[torch.device, Staging] = {}


def staging_of(device: torch.device) -> Staging:
    """The one of this device, whoever asks: what it keeps is bounded for each process."""
    with _making:
        if device not in _stagings:
            _stagings[device] = Staging(device)
        return _stagings[device]
