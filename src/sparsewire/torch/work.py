"""The handles that torch.distributed returns: of a call of the engine, or of several together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import inf

import torch
import torch.distributed as dist
from torch.autograd import Variable

from sparsewire.torch.callbacks import Callbacks
from sparsewire.torch.engine_call import EngineCall
from sparsewire.torch.future import Future

_NO_LIMIT = timedelta(0)


class Work(dist.Work):
    """A call that the engine serves."""

    def __init__(self, call: EngineCall, callbacks: Callbacks) -> None:
        super().__init__()
        self._call = call
        self._callbacks = callbacks
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero is none."""
        self._call.wait(timeout.total_seconds() if timeout > _NO_LIMIT else inf)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._call.done()

    def is_success(self) -> bool:
        return self._call.done() and self._call.error() is None

    def exception(self) -> Exception | None:
        return self._call.error()

    def result(self) -> list[torch.Tensor]:
        return self._call.tensors

    def get_future(self) -> Future[list[torch.Tensor]]:
        """The tensors as a future. In a backward pass, also raise its error from `backward()`."""
        if self._future is None:
            self._future = Future.of(self._call.finish, self._callbacks)
            # DDP would turn the error into a plain RuntimeError. Its own final callback is queued
            # after this one, so this one raises first.
            if torch._C._current_graph_task_id() != -1:
                Variable._execution_engine.queue_callback(self._call.wait)
        return self._future


class Together(dist.Work):
    """Several works as one, for coalesced calls. `tensors` are what they write."""

    def __init__(
        self, works: Sequence[dist.Work], tensors: Sequence[torch.Tensor], callbacks: Callbacks
    ) -> None:
        super().__init__()
        self._works = works
        self._tensors = list(tensors)
        self._callbacks = callbacks

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
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
        return Future.of(self._finish, self._callbacks)

    def _finish(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors
