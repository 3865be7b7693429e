"""The handles that torch.distributed returns: of a call of the engine, or of several together.

Their errors go to the health of their group. If torch would wrap handles, they are handed past
torch to the caller.
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
        """Hooks to run before the group is aborted, and at the error that ends it."""
        self.error: Error | None = None

    def notice(self, error: Error) -> None:
        """Run the hooks in this thread, if this is the first error that ends the communicator."""
        if isinstance(error, MismatchError | InputError):
            return
        with self._noticing:
            is_first = self.error is None
            self.error = self.error or error
        if is_first:
            self.run_hooks()

    def run_hooks(self) -> None:
        """Run every hook. Errors of hooks are logged, so that the other hooks run."""
        for identifier, hook in list(self.hooks.items()):
            try:
                hook()
            except Exception:
                _logger.exception("abort hook %d raised", identifier)


class Together(dist.Work):
    """Several works as one, for coalesced calls. `tensors` are the tensors that they write."""

    def __init__(
        self,
        works: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        callbacks: Callbacks,
        devices: Sequence[torch.device] | None = None,
    ) -> None:
        """`devices` are devices whose streams futures follow; None: the devices of the tensors."""
        super().__init__()
        self._works = works
        self._tensors = list(tensors)
        self._callbacks = callbacks
        self._devices = devices
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero means no limit."""
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
        """A future of the tensors. In a backward pass, `backward()` raises its error, too."""
        if self._future is None:
            devices = devices_of(self._tensors) if self._devices is None else self._devices
            self._future = Future.of(self._finish, self._callbacks, devices)
            # DDP would turn the error into a plain RuntimeError. DDP's own final callback is queued
            # after this one, so this one raises first.
            if torch._C._current_graph_task_id() != -1:
                Variable._execution_engine.queue_callback(self.synchronize)
        return self._future

    def _finish(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors


class EngineWork(Together):
    """A call that the engine serves, with a handle for each of its collectives.

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
        """Block until the end; raises the typed error. A timeout of zero means no limit.

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
        """The error of the first collective that failed, or of writing its result; else None."""
        return self._end([handle for handle in self._works if handle.is_completed()], 0.0)

    def _end(self, handles: Sequence[sparsewire.Work], timeout: float) -> Exception | None:
        """Wait for all handles, for `timeout` seconds in all, and return the first error."""
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
    """Leave a work for the caller of torch in this thread; torch's wrapper keeps the work alive.

    Torch wraps works of a backend that is written in Python. Only `wait` and `get_future` of the
    wrapper reach the work, and futures lose the class that keeps callbacks in order and errors
    typed.
    """
    _last.work = weakref.ref(work)


def handed_over(wrapped: Any) -> Any:
    """The work that `hand_over` left for `wrapped`, or `wrapped` if there is none."""
    left, _last.work = getattr(_last, "work", None), None
    work = left() if left is not None else None
    return wrapped if work is None else work
