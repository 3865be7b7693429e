"""The interface of staging to an accelerator: streams, events, pinned memory. CUDA is the only one.

Tests put a test double into `ACCELERATORS`, for the device type "cpu": then tensors on the CPU are
treated as tensors on a device.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol, TypeVar

import torch
from torch.utils._pytree import tree_leaves

_logger = logging.getLogger(__name__)
_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: captures of other threads have no effect.

T = TypeVar("T")
Stream = Any
"""Runs the work that is put into it in order, at a later time, and beside other streams."""


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Block the host until the stream has reached this point."""

    def query(self) -> bool:
        """Whether the stream has reached this point."""


class Accelerator(Protocol):
    """One kind of device. All methods may be called from any thread."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor of this kind of device is in the device's memory."""

    def current(self, device: torch.device) -> Stream:
        """The stream on which the calling thread works."""

    def make_stream(self, device: torch.device) -> Stream: ...

    def record(self, stream: Stream) -> Event:
        """An event at the end of the work that is in the stream now."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Have work that enters the stream from now on run after the event; does not block."""

    def run(self, stream: Stream, work: Callable[[], T]) -> T:
        """Return `work()`, which issues operations into the stream; may block until they end."""

    def enqueue(self, stream: Stream, work: Callable[[], None]) -> None:
        """Like `run`, for work without a result, which runs before any event recorded later."""

    def hold(self, tensor: torch.Tensor, stream: Stream) -> None:
        """If the tensor is freed, keep its memory from others until the stream is past its work."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        """New host memory, uint8, from and to which the device copies by itself."""

    def future_devices(self, device: torch.device) -> list[torch.device]:
        """Devices whose streams torch's futures must follow."""

    def identity(self, device: torch.device) -> str:
        """A text that two ranks have in common only if they share the device."""

    def aside(self, device: torch.device) -> AbstractContextManager[object]:
        """Have the calling thread work on this device, in its own stream beside the program's.

        The thread's previous device is left untouched.
        """

    def is_capturing(self, device: torch.device) -> bool:
        """Whether the calling thread's work goes into a graph, and is done when the graph runs."""

    def ignore_captures(self) -> None:
        """Let the calling thread wait for events while another one captures a graph."""


class Cuda:
    """CUDA through torch."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def current(self, device: torch.device) -> Stream:
        return torch.cuda.current_stream(device)

    def make_stream(self, device: torch.device) -> Stream:
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, stream: Stream) -> Event:
        # A host thread that waits for it sleeps, and leaves the processors to the program.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def wait(self, stream: Stream, event: Any) -> None:
        stream.wait_event(event)

    def run(self, stream: Stream, work: Callable[[], T]) -> T:
        # Threads begin on device 0. To return from a stream to that device makes a context there,
        # half a gigabyte for each rank. Here the stream is left while its own device is current.
        with torch.cuda.device(stream.device), torch.cuda.stream(stream):
            return work()

    def enqueue(self, stream: Stream, work: Callable[[], None]) -> None:
        self.run(stream, work)

    def hold(self, tensor: torch.Tensor, stream: Stream) -> None:
        tensor.record_stream(stream)

    def pinned(self, nbytes: int) -> torch.Tensor:
        # Not on the program's default device.
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def future_devices(self, device: torch.device) -> list[torch.device]:
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.device(device.type, index)]

    def identity(self, device: torch.device) -> str:
        return str(torch.cuda.get_device_properties(device).uuid)

    @contextmanager
    def aside(self, device: torch.device) -> Iterator[None]:
        streams: dict[str, Stream] = vars(self._thread)
        if str(device) not in streams:
            self.ignore_captures()
            streams[str(device)] = self.make_stream(device)
        with torch.cuda.device(device), torch.cuda.stream(streams[str(device)]):
            yield

    def is_capturing(self, device: torch.device) -> bool:
        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()

    def ignore_captures(self) -> None:
        # Before CUDA is in use there is nothing to ignore, and children may yet be forked.
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        mode = ctypes.c_int(_THREAD_LOCAL)
        try:
            _cuda_runtime().cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        except (OSError, AttributeError) as error:
            _logger.debug("threads cannot be told to ignore graphs of others: %s", error)


@cache
def _cuda_runtime() -> Any:
    """The CUDA runtime that torch has loaded; torch itself exposes only a part of it."""
    major = str(torch.version.cuda).partition(".")[0]
    return ctypes.CDLL(f"libcudart.so.{major}", mode=os.RTLD_NOW | os.RTLD_NOLOAD)


ACCELERATORS: dict[str, Accelerator] = {"cuda": Cuda()}
"""Accelerators by the type of their devices."""


def working_on(devices: Sequence[torch.device]) -> AbstractContextManager[object]:
    """Like `Accelerator.aside`, on the first of these devices; does nothing without devices."""
    first = next(iter(devices), None)
    return nullcontext() if first is None else ACCELERATORS[first.type].aside(first)


def is_on_device(tensor: torch.Tensor) -> bool:
    """Whether the engine reaches the tensor only through host memory."""
    accelerator = ACCELERATORS.get(tensor.device.type)
    return accelerator is not None and accelerator.holds(tensor)


def ignore_captures() -> None:
    """Like `Accelerator.ignore_captures`, for all kinds; our threads call it as they begin."""
    for accelerator in ACCELERATORS.values():
        accelerator.ignore_captures()


def devices_of(tensors: Any) -> list[torch.device]:
    """Devices whose streams torch's futures of these tensors, nested or not, must follow."""
    found = {each.device: None for each in tree_leaves(tensors) if is_on_device(each)}
    return [each for device in found for each in ACCELERATORS[device.type].future_devices(device)]
