"""Futures that keep the type of an error, and the thread of one group that completes them.

It also runs what `.then` attached to them. Callbacks may issue collectives, as PowerSGD's do, so
every rank must run them in the same order, whatever ends first where. One thread that works in
program order does that.
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
    """How deep in callbacks the caller is: 0 outside, 1 in a callback, 2 in a callback's, ..."""
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
        """Run `task` after all that were put before, after `close` at once. It must not raise."""
        with self._changing:
            if not self._closed:
                self._tasks.put(task)
                self._start()
                return
        task()

    def run_until(self, done: Callable[[], bool]) -> None:
        """Work on from inside a task that waits for what a later task will do."""
        while not done() and (task := self._tasks.get()) is not None:
            task()

    def close(self) -> None:
        """Run what is queued, then end the thread. Idempotent."""
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
            # Or what the last task has to do with would live until the next one comes.
            del task


class _Failed:
    """The value of a future that failed. C++ code that tries to use it raises the error instead."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        # Torch looks for tensors inside a Python value by pickling it.
        raise self.error

    def __str__(self) -> str:
        # DDP wants a tensor of a hook, and is about to complain that this is none.
        raise self.error


def _unwrap(value: object) -> None:
    if isinstance(value, _Failed):
        raise value.error


class Future(torch.futures.Future[T]):
    """A torch future whose callbacks all run on the callback thread of a group.

    Torch runs a callback in whichever thread comes last, the one that completes or the one that
    attaches, and turns any error into a RuntimeError.
    """

    def __init__(self, callbacks: Callbacks, devices: Sequence[torch.device] = ()) -> None:
        """`devices` are those whose streams must see what is done to the value before it is."""
        super().__init__(devices=list(devices) or None)
        self._callbacks = callbacks
        self._devices = devices
        # Of futures with devices, torch makes a RuntimeError of what `_Failed` raises.
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._set_unwrap_func(_unwrap)

    @classmethod
    def of(
        cls, compute: Callable[[], T], callbacks: Callbacks, devices: Sequence[torch.device] = ()
    ) -> Future[T]:
        """What `compute` returns or raises once the callback thread has come to it."""
        future: Future[T] = cls(callbacks, devices)
        callbacks.put(lambda: future._settle(compute))
        return future

    def wait(self) -> T:
        """Block until the end. Raises the error of the operation, or of a callback before it."""
        if self._callbacks.is_current():
            self._callbacks.run_until(self.done)
        # Unlike torch's own wait, this one lets Ctrl-C through.
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return super().wait()

    def value(self) -> T:
        """The value of a future that has one; raises the error of one that failed."""
        if self._error is not None:
            raise self._error
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> Future[Any]:
        """Run `callback(self)` after the end, and have what it returns as a future."""

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
            # Also the end: torch records events of it, where it would make a context of its own,
            # and in the thread's stream, where they would wait for all that the program has to do.
            with working_on(self._devices):
                self.set_result(self._computed(compute))
        except Exception as error:  # The device refused: nobody may wait for that for ever.
            self._error = error
        self._ended.set()

    def _computed(self, compute: Callable[[], T]) -> Any:
        try:
            return compute()
        except BaseException as error:  # Who waits must hear even of sys.exit() in a callback.
            self._error = error
            return _Failed(error)
