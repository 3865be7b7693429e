"""Futures that keep the type of an error, and the thread of one group that completes them.

The thread also runs callbacks that `.then` attaches. Callbacks may issue collectives, as PowerSGD's
do, so every rank must run them in the same order, whichever operation ends first. So one thread
runs them in program order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from sparsewire.device.accelerator import working_on

T = TypeVar("T")
Task = Callable[[], None]

_running = threading.local()


def current_level() -> int:
    """How deep in callbacks the caller is: 0 outside, 1 in a callback, 2 in its callback, ..."""
    level: int = getattr(_running, "level", 0)
    return level


class Callbacks:
    """Runs tasks one after another on a thread of its own, which starts with the first task."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def is_current(self) -> bool:
        """Whether the caller is one of these tasks."""
        return threading.current_thread() is self._thread

    def put(self, task: Task) -> None:
        """Run `task` after all earlier tasks; after `close`, at once. `task` must not raise."""
        with self._changing:
            if not self._closed:
                self._tasks.put(task)
                self._start()
                return
        task()

    def run_until(self, done: Callable[[], bool]) -> None:
        """Run later tasks from inside a task that waits for one of them, until `done()` is true."""
        while not done() and (task := self._tasks.get()) is not None:
            task()

    def close(self) -> None:
        """Run the queued tasks, then end the thread. Idempotent."""
        with self._changing:
            self._closed = True
            self._tasks.put(None)
            thread = self._thread
        if thread is not None and not self.is_current():
            thread.join()

    def _start(self) -> None:
        if self._thread is None:
            # A daemon, so that a program that forgets to destroy its groups still ends.
            self._thread = threading.Thread(
                target=self._run,
                args=(torch.get_num_threads(),),
                name="sparsewire-callbacks",
                daemon=True,
            )
            self._thread.start()

    def _run(self, compute_threads: int) -> None:
        _running.level = self._level
        # OpenMP would give this thread a team as large as the machine.
        torch.set_num_threads(compute_threads)
        while not self._closed or not self._tasks.empty():
            task = self._tasks.get()
            if task is not None:
                task()
            # Otherwise the objects of the last task would live until the next task comes.
            del task


class _Failed:
    """The value of a future that failed. C++ code that tries to use it raises the error instead."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        # Torch looks for tensors inside a Python value by pickling it.
        raise self.error

    def __str__(self) -> str:
        # DDP wants a tensor from a hook, and is about to report that this is none.
        raise self.error


def _unwrap(value: object) -> None:
    if isinstance(value, _Failed):
        raise value.error


class Future(torch.futures.Future[T]):
    """A torch future whose callbacks all run on the callback thread of a group.

    Torch itself runs a callback in the later of two threads, the one that completes the future and
    the one that attaches the callback, and turns any error into a RuntimeError.
    """

    def __init__(self, callbacks: Callbacks, devices: Sequence[torch.device] = ()) -> None:
        """`devices` are those whose streams must see the completed value."""
        super().__init__(devices=list(devices) or None)
        self._callbacks = callbacks
        self._devices = devices
        # In futures with devices, torch turns errors that `_Failed` raises into a RuntimeError.
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._set_unwrap_func(_unwrap)

    @classmethod
    def of(
        cls, compute: Callable[[], T], callbacks: Callbacks, devices: Sequence[torch.device] = ()
    ) -> Future[T]:
        """A future of `compute()`, which the callback thread calls in its turn."""
        future: Future[T] = cls(callbacks, devices)
        callbacks.put(lambda: future._settle(compute))
        return future

    def wait(self) -> T:
        """Block until the end and return the value. Raises the operation's or callback's error."""
        if self._callbacks.is_current():
            self._callbacks.run_until(self.done)
        # Unlike torch's own wait, this one lets Ctrl-C through.
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return super().wait()

    def value(self) -> T:
        """The value of a completed future; raises the error if it failed."""
        if self._error is not None:
            raise self._error
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Future[Any]:
        """Run `callback(self)` after the end, and return a future of its result."""

        def call_back() -> Any:
            self._lend()
            return callback(self)

        return Future.of(call_back, self._callbacks, self._devices)

    def _lend(self) -> None:
        """Have the memory of the value kept until this thread's streams are done with it."""
        if self._devices and self._error is None:
            super().wait()

    def _settle(self, compute: Callable[[], T]) -> None:
        try:
            # `set_result` is inside, too, because torch records events in it: elsewhere it would
            # make a context of its own, and the events would wait for all work of the program.
            with working_on(self._devices):
                self.set_result(self._computed(compute))
        except Exception as error:  # The device refused; nobody may wait for ever because of that.
            self._error = error
        self._ended.set()

    def _computed(self, compute: Callable[[], T]) -> Any:
        try:
            return compute()
        except BaseException as error:  # Waiters must hear even of sys.exit() in a callback.
            self._error = error
            return _Failed(error)
