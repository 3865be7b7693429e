"""The order of collectives on one tensor: a later one reads the results of earlier ones.

If the caller does not wait in between, nothing else keeps this order, because an earlier result
comes in another stream.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from sparsewire.device.accelerator import Event
from sparsewire.device.staging import Way

Stretch = tuple[int, int]


class Arrival:
    """The end of a collective, and the event of its result on the device, if it succeeds."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.there: Event | None = None

    def end(self, there: Event | None) -> None:
        """Note the end. The result is on the device at `there`; None: the collective failed."""
        self.there = there
        self.over.set()

    def has_come(self) -> bool:
        """Whether the collective has ended, also on the device."""
        return self.over.is_set() and (self.there is None or self.there.query())

    def lead(self, way: Way) -> None:
        """Block until the copy back has begun, and have later work in `way` see the result."""
        self.over.wait()
        if self.there is not None:
            way.follow(self.there)


class Turns:
    """The collectives of a group that have not ended, with the memory that each uses."""

    def __init__(self) -> None:
        self._taking = threading.Lock()
        self._taken: list[tuple[list[Stretch], Arrival]] = []

    def take(self, tensors: Sequence[torch.Tensor], arrival: Arrival) -> list[Arrival]:
        """Earlier collectives that one on these tensors must follow; called in program order."""
        stretches = [_stretch(tensor) for tensor in tensors]
        with self._taking:
            self._taken = [each for each in self._taken if not each[1].has_come()]
            former = [each for taken, each in self._taken if _overlap(taken, stretches)]
            self._taken.append((stretches, arrival))
        return former


def _stretch(tensor: torch.Tensor) -> Stretch:
    """First address of the tensor, and the address behind its last.

    A sparse tensor gets an address that only it has, because its memory is replaced.
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
