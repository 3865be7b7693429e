"""The means to stage tensors of one device: two streams, and pinned memory for each stream.

Down is from the device to the host, up is back. The two ways share nothing, so that neither waits
for the other. Nothing in these streams waits for streams of the program, which may be far behind:
the thread that stages a tensor waits for the program first, on the host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cached_property

import torch

from sparsewire.device.accelerator import ACCELERATORS, Accelerator, Event, Stream, T
from sparsewire.device.pinned import Loan, PinnedPool

_logger = logging.getLogger(__name__)


class Way:
    """One direction: a stream in which copies run, and the host memory that they use."""

    def __init__(
        self, accelerator: Accelerator, device: torch.device, pool: PinnedPool | None = None
    ) -> None:
        self._accelerator = accelerator
        self._stream: Stream = accelerator.make_stream(device)
        self.pool = PinnedPool(accelerator.pinned) if pool is None else pool

    def loan(self) -> Loan:
        """Pinned memory for one transfer."""
        return Loan(self.pool, self)

    def follow(self, event: Event) -> None:
        """Run later work of this stream after the event, which must be of one of our streams."""
        self._accelerator.wait(self._stream, event)

    def hold(self, *tensors: torch.Tensor) -> None:
        """Keep the memory of tensors of other streams until this way is done with it."""
        for tensor in tensors:
            if tensor.numel():
                self._accelerator.hold(tensor, self._stream)

    def run(self, work: Callable[[], T]) -> T:
        return self._accelerator.run(self._stream, work)

    def enqueue(self, work: Callable[[], None]) -> Event:
        """Have `work` done at some time; the event tells when it is done."""
        self._accelerator.enqueue(self._stream, work)
        return self.record()

    def record(self) -> Event:
        return self._accelerator.record(self._stream)

    def end(self) -> Event | None:
        """Like `record`, after a failure; None if the device has failed, too."""
        try:
            return self.record()
        except Exception as error:
            _logger.debug("the device does not say when it is done: %s", error)
            return None


class Staging:
    """Both ways of one device."""

    def __init__(
        self, device: torch.device, down: PinnedPool | None = None, up: PinnedPool | None = None
    ) -> None:
        """`down` and `up` are pools of another staging to share; None makes new pools."""
        self.device = device
        self.accelerator = ACCELERATORS[device.type]
        self.down = Way(self.accelerator, device, down)
        self.up = Way(self.accelerator, device, up)

    def apart(self) -> Staging:
        """A staging with other streams over the same memory."""
        return Staging(self.device, self.down.pool, self.up.pool)

    def called(self, *tensors: torch.Tensor) -> Event:
        """In the caller's thread: an event after which `tensors` hold what the caller enqueued.

        Their memory stays until both ways are done with it.
        """
        for way in (self.down, self.up):
            way.hold(*tensors)
        return self.accelerator.record(self.accelerator.current(self.device))

    def lead_caller(self, event: Event, *made: torch.Tensor) -> None:
        """Have the caller's later work run after `event`, and keep `made` tensors for it."""
        current = self.accelerator.current(self.device)
        self.accelerator.wait(current, event)
        for tensor in made:
            self.accelerator.hold(tensor, current)

    @cached_property
    def future_devices(self) -> list[torch.device]:
        """Devices whose streams torch's futures must follow."""
        return self.accelerator.future_devices(self.device)


_making = threading.Lock()
_stagings: dict[torch.device, Staging] = {}


def staging_of(device: torch.device) -> Staging:
    """The process's staging of this device, so that its memory is bounded for the process."""
    with _making:
        if device not in _stagings:
            _stagings[device] = Staging(device)
        return _stagings[device]


class Stagings:
    """One group's stagings by device. They have their own streams, and wait for no other group.

    They use the memory of the process, from which each staging borrows for itself.
    """

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: dict[torch.device, Staging] = {}

    def of(self, device: torch.device) -> Staging:
        with self._making:
            if device not in self._made:
                self._made[device] = staging_of(device).apart()
            return self._made[device]
