"""Stands in for CUDA's runtime below torch.cuda: which device a thread is on, and which are in use.

As in CUDA 12, to set a device makes a context on it, if there is none.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch


@dataclass(frozen=True)
class FakeStream:
    device: torch.device
    number: int = 0


@dataclass
class Runtime:
    """`contexts` are the devices that have one. Threads begin on device 0."""

    contexts: set[int] = field(default_factory=set)
    _thread: Any = field(default_factory=threading.local)

    def current(self) -> int:
        index: int = getattr(self._thread, "device", 0)
        return index

    def current_stream(self, device: Any = None) -> FakeStream:
        index = self.current() if device is None else device.index
        default = FakeStream(torch.device("cuda", index))
        stream: FakeStream = vars(self._thread).get(f"stream {index}", default)
        return stream

    def exchange(self, index: int) -> int:
        self.contexts.add(index)
        return self.maybe_exchange(index)

    def maybe_exchange(self, index: int) -> int:
        former, self._thread.device = self.current(), index
        return former

    def set_stream(self, stream: FakeStream) -> None:
        index = stream.device.index
        if index != self.current():
            self.exchange(index)
        vars(self._thread)[f"stream {index}"] = stream


@contextlib.contextmanager
def runtime() -> Iterator[Runtime]:
    """Put one below `torch.cuda.device` and `torch.cuda.stream`."""
    made = Runtime()

    def index_of(device: Any, optional: bool = False) -> int:
        return made.current() if device is None else device.index

    fakes = {
        "_get_device_index": index_of,
        "_exchange_device": made.exchange,
        "_maybe_exchange_device": made.maybe_exchange,
        "current_stream": made.current_stream,
        "set_stream": made.set_stream,
    }
    with contextlib.ExitStack() as stack:
        for name, fake in fakes.items():
            stack.enter_context(patch.object(torch.cuda, name, fake))
        yield made
