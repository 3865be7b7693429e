"""The order of collectives on one tensor: a later one reads what those before it bring back.

Unless its caller waits in between, nothing else says so: an earlier result comes by another stream.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from sparsewire.device.accelerator import Event
from sparsewire.device.staging import Way

Stretch = tuple[int, int]


class Arrival:
    """The end of a collective, and when its result is on the device; never where it failed."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.there: Event | None = None

    def end(self, there: Event | None) -> None:
        """The result is there once the device has come to `there`."""
        self.there = there
        self.over.set()

    def has_come(self) -> bool:
        """Whether all is over, on the device, too."""
        return self.over.is_set() and (self.there is None or self.there.query())

    def lead(self, way: Way) -> None:
        """Block until the way back has begun, and have what comes into `way` see the result."""
        self.over.wait()
        if self.there is not None:
            way.follow(self.there)


class Turns:
    """Which collectives of a group use which memory, as long as they are not over."""

    def __init__(self) -> None:
        self._taking = threading.Lock()
        self._taken: list[tuple[list[Stretch], Arrival]] = []

    def take(self, tensors: Sequence[torch.Tensor], arrival: Arrival) -> list[Arrival]:
        """In the program's order: those that a collective on these tensors has to come behind."""
        stretches = [_stretch(tensor) for tensor in tensors]
        with self._taking:
            self._taken = [each for each in self._taken if not each[1].has_come()]
            former = [each for taken, each in self._taken if _overlap(taken, stretches)]
            self._taken.append((stretches, arrival))
        return former


def _stretch(tensor: torch.Tensor) -> Stretch:
    """Addresses, from the first to behind the last; of a sparse tensor one that is its alone.

    The memory of a sparse tensor is replaced.
    """
    if tensor.layout is torch.sparse_coo:
        return tensor._cdata, tensor._cdata + 1
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in sizes)
    return begin, begin + (last + 1) * tensor.element_size()


def _overlap(some: Sequence[Stretch], others: Sequence[Stretch]) -> bool:
    return any(
        begin < other_end and other_begin < end
        for begin, end in some
        for other_begin, other_end in others
    )
