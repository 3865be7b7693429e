"""Stands in for CUDA: tensors on the CPU count as on a device, whose streams run late.

What is enqueued runs only when something waits for it, at the last moment, and pinned memory is
poisoned whenever it is handed out. So whoever reads before an event, or gives memory back too
early, gets wrong numbers, and not by chance.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from sparsewire.device import staging
from sparsewire.device.accelerator import ACCELERATORS

T = TypeVar("T")
POISON = 0xA5


class LateStream:
    """Runs nothing by itself."""

    def __init__(self, double: Double) -> None:
        self._double = double
        self._pending: deque[Callable[[], None]] = deque()
        self._put = 0
        self._done = 0

    def put(self, work: Callable[[], None]) -> None:
        with self._double.lock:
            self._pending.append(work)
            self._put += 1

    def run_until(self, place: int) -> None:
        with self._double.lock:
            while self._done < place:
                self._done += 1
                self._pending.popleft()()

    def run_all(self) -> None:
        self.run_until(self._put)

    @property
    def end(self) -> int:
        return self._put


class LateEvent:
    def __init__(self, stream: LateStream) -> None:
        self._stream, self._place = stream, stream.end

    def synchronize(self) -> None:
        self._stream.run_until(self._place)

    def query(self) -> bool:
        self.synchronize()  # Asking takes time, too.
        return True


class Double:
    """An accelerator. `caller` is the stream of the program's threads."""

    def __init__(self, identity: str = "") -> None:
        self.lock = threading.RLock()
        self.caller = LateStream(self)
        self.held: list[tuple[int, LateStream]] = []
        self.failing: Exception | None = None
        self._pinned: set[int] = set()
        self._identity = identity

    def holds(self, tensor: torch.Tensor) -> bool:
        """All of the CPU's memory is the device's, but for what is pinned."""
        part = tensor._values() if tensor.layout is torch.sparse_coo else tensor
        return part.untyped_storage().data_ptr() not in self._pinned

    def current(self, device: torch.device) -> LateStream:
        return self.caller

    def make_stream(self, device: torch.device) -> LateStream:
        return LateStream(self)

    def record(self, stream: LateStream) -> LateEvent:
        return LateEvent(stream)

    def wait(self, stream: LateStream, event: LateEvent) -> None:
        stream.put(event.synchronize)
        if stream is self.caller:
            # On the CPU, the program does not wait for its own stream before it reads.
            stream.run_all()

    def run(self, stream: LateStream, work: Callable[[], T]) -> T:
        if self.failing is not None:
            raise self.failing
        stream.run_all()
        return work()  # It may wait for other ranks, and other threads must go on.

    def enqueue(self, stream: LateStream, work: Callable[[], None]) -> None:
        stream.put(work)

    def hold(self, tensor: torch.Tensor, stream: LateStream) -> None:
        self.held.append((tensor.data_ptr(), stream))

    def pinned(self, nbytes: int) -> torch.Tensor:
        memory = torch.full((nbytes,), POISON, dtype=torch.uint8)
        self._pinned.add(memory.untyped_storage().data_ptr())
        return memory

    def future_devices(self, device: torch.device) -> list[torch.device]:
        return []

    def identity(self, device: torch.device) -> str:
        return self._identity


class PoisoningPool(staging.PinnedPool):
    """Spoils what comes back as soon as the device is said to be done with it."""

    def take(self, nbytes: int) -> torch.Tensor:
        return super().take(nbytes).fill_(POISON)


@contextlib.contextmanager
def cpu_as_device(identity: str = "") -> Iterator[Double]:
    """Have tensors on the CPU staged, in this process, as if they were on a device."""
    double: Any = Double(identity)
    former_pool, former = staging.PinnedPool, dict(staging._stagings)
    ACCELERATORS["cpu"] = double
    staging._stagings.clear()
    staging.PinnedPool = PoisoningPool  # type: ignore[misc]
    try:
        yield double
    finally:
        del ACCELERATORS["cpu"]
        staging.PinnedPool = former_pool  # type: ignore[misc]
        staging._stagings.clear()
        staging._stagings.update(former)
