"""The handles that torch.distributed returns: of a call of the engine, or of several together.

What goes wrong with them is the health of their group, and where torch would wrap them, they are
handed past it to the caller.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Variable

import sparsewire
from sparsewire.device.accelerator import devices_of
from sparsewire.errors import Error, InputError, MismatchError
from sparsewire.torch.calls.futures import Callbacks, Future
from sparsewire.torch.calls.profiling import event

_logger = logging.getLogger(__name__)
_last = threading.local()

_NO_LIMIT = timedelta(0)
Hook = Callable[[], None]


class Health:
    """The first error that ended a group's communicator, and the hooks to run because of it."""

    def __init__(self) -> None:
        self._noticing = threading.Lock()
        self.hooks: dict[int, Hook] = {}
        """What to run before the group is aborted and at the error that ends it."""
        self.error: Error | None = None

    def notice(self, error: Error) -> None:
        """Run the hooks in this thread, if this is the first error after which nothing goes on."""
        if isinstance(error, MismatchError | InputError):
            return
        with self._noticing:
            is_first = self.error is None
            self.error = self.error or error
        if is_first:
            self.run_hooks()

    def run_hooks(self) -> None:
        """Run every hook. One that raises is logged, so that the others run."""
        for identifier, hook in list(self.hooks.items()):
            try:
                hook()
            except Exception:
                _logger.exception("abort hook %d raised", identifier)


class Together(dist.Work):
    """Several works as one, for coalesced calls. `tensors` are what they write."""

    def __init__(
        self,
        works: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        callbacks: Callbacks,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        """`devices` are those whose streams futures follow; None: those of the tensors."""
        super().__init__()
        self._works = works
        self._tensors = list(tensors)
        self._callbacks = callbacks
        self._devices = devices
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero is none."""
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> Future[list[torch.Tensor]]:
        """The tensors as a future. In a backward pass, also raise its error from `backward()`."""
        if self._future is None:
            devices = devices_of(self._tensors) if self._devices is None else self._devices
            self._future = Future.of(self._finish, self._callbacks, devices)
            # DDP would turn the error into a plain RuntimeError. Its own final callback is queued
            # after this one, so this one raises first.
            if torch._C._current_graph_task_id() != -1:
                Variable._execution_engine.queue_callback(self.synchronize)
        return self._future

    def _finish(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors


class EngineWork(Together):
    """A call that the engine serves, one handle for each collective that it consists of.

    Once it is known to have ended, results are in the tensors.
    """

    def __init__(
        self,
        handles: Sequence[sparsewire.Work],
        tensors: Sequence[torch.Tensor],
        callbacks: Callbacks,
        health: Health,
    ) -> None:
        super().__init__(handles, tensors, callbacks)
        self._health = health

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero is none.

        After the timeout the collectives are still in flight, and still write into the tensors.
        """
        with event("wait"):
            error = self._end(self._works, timeout.total_seconds() if timeout > _NO_LIMIT else inf)
        if error is not None:
            raise error
        return True

    def is_completed(self) -> bool:
        completed = super().is_completed()
        if completed:
            self.exception()
        return completed

    def is_success(self) -> bool:
        return super().is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Why the first collective that failed did, or why its result is not in the tensor."""
        return self._end([handle for handle in self._works if handle.is_completed()], 0.0)

    def _end(self, handles: Sequence[sparsewire.Work], timeout: float) -> Exception | None:
        """Wait for all of them, for `timeout` seconds together; the first error."""
        deadline = time.monotonic() + timeout
        errors = [self._error_of(handle, deadline - time.monotonic()) for handle in handles]
        return next(filter(None, errors), None)

    def _error_of(self, handle: sparsewire.Work, timeout: float) -> Exception | None:
        try:
            handle.wait(max(0.0, round(timeout, 3)))
        except Exception as error:
            if (failure := handle.exception()) is not None:
                self._health.notice(failure)
            return error
        return None


def hand_over(work: dist.Work) -> None:
    """Leave a work for whoever called torch in this thread; what torch made of it keeps it alive.

    Where a backend is written in Python, torch wraps its works: of the wrapper only `wait` and
    `get_future` reach the work, and futures lose the class that keeps callbacks in order and errors
    typed.
    """
    _last.work = weakref.ref(work)


def handed_over(wrapped: Any) -> Any:
    """The work that was left behind `wrapped`, or `wrapped` where there is none."""
    left, _last.work = getattr(_last, "work", None), None
    work = left() if left is not None else None
    return wrapped if work is None else work
