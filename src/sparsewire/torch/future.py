"""Futures that keep the type of an error and run their callbacks in program order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sparsewire.torch.callbacks import Callbacks

T = TypeVar("T")


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

    def __init__(self, callbacks: Callbacks) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._ended = threading.Event()
        self._set_unwrap_func(_unwrap)

    @classmethod
    def of(cls, compute: Callable[[], T], callbacks: Callbacks) -> Future[T]:
        """What `compute` returns or raises once the callback thread has come to it."""
        future: Future[T] = cls(callbacks)
        callbacks.put(lambda: future._settle(compute))
        return future

    def wait(self) -> T:
        """Block until the end. Raises the error of the operation, or of a callback before it."""
        if self._callbacks.is_current():
            self._callbacks.run_until(self.done)
        # Unlike torch's own wait, this one lets Ctrl-C through.
        self._ended.wait()
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> Future[Any]:
        """Run `callback(self)` after the end, and have what it returns as a future."""
        return Future.of(lambda: callback(self), self._callbacks)

    def _settle(self, compute: Callable[[], T]) -> None:
        try:
            value: Any = compute()
        except BaseException as error:  # Who waits must hear even of sys.exit() in a callback.
            value = _Failed(error)
        self._ended.set()
        self.set_result(value)
