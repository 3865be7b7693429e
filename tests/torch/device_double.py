"""Stands in for CUDA: tensors on the CPU count as on a device, whose streams run late.

Nothing that is put into a stream runs before the host waits for something. Then it is done in an
order that streams and events allow: at the last moment, or with `SPARSEWIRE_TESTS_SEED` in any.
Pinned memory is poisoned whenever it is handed out. So whoever reads before an event, or gives
memory back too early, gets wrong numbers, and not by chance.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from late_operations import POISON, Asking, Late

from sparsewire.device import staging
from sparsewire.device.accelerator import ACCELERATORS

T = TypeVar("T")
SEED = "SPARSEWIRE_TESTS_SEED"
# Between looks at what no thread tells of.
_LOOK_S = 0.005


class Entry(NamedTuple):
    """What a stream comes to: work, once it `may_run`; until then it may need another stream."""

    work: Callable[[], None]
    may_run: Callable[[], bool] = lambda: True
    event: LateEvent | None = None


class LateStream:
    """Runs nothing by itself."""

    def __init__(self, double: Double) -> None:
        self._double = double
        self._pending: deque[Entry] = deque()
        self.put_count = 0
        self.done_count = 0

    def put(self, work: Callable[[], None], may_run: Callable[[], bool] = lambda: True) -> None:
        """Do `work` behind all that was put before, and not before it `may_run`."""
        self.append(Entry(work, may_run))

    def append(self, entry: Entry) -> None:
        with self._double.changed:
            self._pending.append(entry)
            self.put_count += 1
            self._double.changed.notify_all()

    def synchronize(self) -> None:
        """Block until all is done that is in it now."""
        LateEvent(self).synchronize()

    @property
    def may_step(self) -> bool:
        return bool(self._pending) and self._pending[0].may_run()

    def step(self) -> None:
        self._pending.popleft().work()
        self.done_count += 1

    def blocker(self) -> LateStream | None:
        """The stream that has to go on first, itself if it is that; None: something outside."""
        if self.may_step:
            return self
        event = self._pending[0].event if self._pending else None
        return event.stream.blocker() if event is not None else None


class LateEvent:
    """The end of what is in a stream now."""

    def __init__(self, stream: LateStream) -> None:
        self.stream, self._place = stream, stream.put_count

    @property
    def is_reached(self) -> bool:
        return self.stream.done_count >= self._place

    def synchronize(self) -> None:
        self.stream._double.run_until(self)

    def query(self) -> bool:
        """Asking takes time, too: a step of some stream."""
        with self.stream._double.changed:
            if not self.is_reached:
                self.stream._double.step(self.stream)
            return self.is_reached


class Double:
    """An accelerator. `caller` is the stream of the program's threads.

    A program that `waits` is one that reads tensors once its own stream waits for them; another
    has to synchronise with its stream, as with a device's.
    """

    def __init__(self, identity: str = "") -> None:
        self.changed = threading.Condition(threading.RLock())
        self.streams: list[LateStream] = []
        self.caller = self.make_stream()
        self.waits = True
        self.held: list[tuple[int, LateStream]] = []
        self.failing: Exception | None = None
        self.capturing = False
        self.uses_until_failure = 0
        self.shuffle(os.environ.get(SEED))
        self.thread = threading.local()
        self.ignoring: set[str] = set()
        """Threads that go on while others capture graphs."""
        self._pinned: set[int] = set()
        self._asides: list[LateStream] = []
        self._identity = identity

    def shuffle(self, seed: int | str | None) -> None:
        """Choose anew among the orders that are allowed; None: everything at the last moment."""
        self._is_shuffled = seed is not None
        self._random = random.Random(seed)

    def run_until(self, event: LateEvent) -> None:
        with self.changed:
            while not event.is_reached:
                if not self.step(event.stream):
                    self.changed.wait(_LOOK_S)

    def synchronize(self) -> None:
        """Block until all is done that is in any stream now."""
        for event in [LateEvent(stream) for stream in self.streams]:
            self.run_until(event)

    def step(self, needed: LateStream) -> bool:
        """Run one entry of some stream, without a seed of one that `needed` waits for."""
        ready = [each for each in self.streams if each.may_step]
        blocker = needed.blocker()
        if not self._is_shuffled or not ready:
            ready = [] if blocker is None else [blocker]
        if ready:
            self._random.choice(ready).step()
            self.changed.notify_all()
        return bool(ready)

    def holds(self, tensor: torch.Tensor) -> bool:
        """All of the CPU's memory is the device's, but for what is pinned."""
        part = tensor._values() if tensor.layout is torch.sparse_coo else tensor
        return part.untyped_storage().data_ptr() not in self._pinned

    def current(self, device: torch.device) -> LateStream:
        stream: LateStream = getattr(self.thread, "stream", self.caller)
        return stream

    def make_stream(self, device: torch.device | None = None) -> LateStream:
        stream = LateStream(self)
        self.streams.append(stream)
        return stream

    def record(self, stream: LateStream) -> LateEvent:
        return LateEvent(stream)

    def wait(self, stream: LateStream, event: LateEvent) -> None:
        stream.append(Entry(lambda: None, lambda: event.is_reached, event))
        if stream in (self.caller, *self._asides) and self.waits:
            # On the CPU, the program does not wait for its own stream before it reads.
            stream.synchronize()

    def run(self, stream: LateStream, work: Callable[[], T]) -> T:
        self._fail_now_and_then()
        former = self.current(torch.device("cpu"))
        self.thread.stream = stream
        try:
            with Asking(stream.synchronize), Late(stream.put, stream.synchronize):
                return work()
        finally:
            self.thread.stream = former

    def enqueue(self, stream: LateStream, work: Callable[[], None]) -> None:
        self.run(stream, work)

    def hold(self, tensor: torch.Tensor, stream: LateStream) -> None:
        self.held.append((tensor.data_ptr(), stream))

    def pinned(self, nbytes: int) -> torch.Tensor:
        memory = torch.full((nbytes,), POISON, dtype=torch.uint8, device="cpu")
        self._pinned.add(memory.untyped_storage().data_ptr())
        return memory

    def future_devices(self, device: torch.device) -> list[torch.device]:
        return []

    def identity(self, device: torch.device) -> str:
        return self._identity

    @contextlib.contextmanager
    def aside(self, device: torch.device) -> Iterator[None]:
        """What the calling thread works on is in `thread.device`."""
        former = vars(self.thread).copy()
        self.thread.device, self.thread.stream = device, self.make_stream()
        self._asides.append(self.thread.stream)
        yield
        vars(self.thread).clear()
        vars(self.thread).update(former)

    def is_capturing(self, device: torch.device) -> bool:
        return self.capturing

    def ignore_captures(self) -> None:
        self.ignoring.add(threading.current_thread().name)

    def _fail_now_and_then(self) -> None:
        """Raise what is `failing`, after so many uses of the device that it gets through."""
        if self.failing is not None:
            self.uses_until_failure -= 1
            if self.uses_until_failure < 0:
                raise self.failing


class PoisoningPool(staging.PinnedPool):
    """Spoils what comes back as soon as the device is said to be done with it."""

    def take(self, nbytes: int, loan: Any) -> torch.Tensor:
        return super().take(nbytes, loan).fill_(POISON)


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
