"""The backend that torch 2.14 and newer get, for a process group of torch's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from sparsewire.errors import Error, PeerLost, Timeout
from sparsewire.torch.health import Hook
from sparsewire.torch.member import NAME, Member

# Torch's stubs of older versions do not know that backends can be written in Python.
_Backend: Any = c10d.Backend
_c10d: Any = c10d


class EngineBackend(Member, _Backend):  # type: ignore[misc]
    """One rank's end of a process group. All members make it together.

    The properties answer what torch's own would ask of this class again, without end.
    """

    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: True)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: True)
    _supports_time_estimate = property(lambda self: False)

    def _present(self, timeout: timedelta) -> None:
        self._options = _Backend.Options(NAME, timeout=timeout)

    @property
    def options(self) -> Any:
        """What torch reads of every backend: its name and its timeout."""
        return self._options

    @property
    def _timeout(self) -> timedelta:
        timeout: timedelta = self._options._timeout
        return timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout
        super().set_timeout(timeout)

    def get_error(self) -> Any:
        """What ended this group, as far as it is known here: torch's `ErrorType`."""
        return getattr(_c10d.ErrorType, _kind_of(self.failure()))

    def registerAbortHook(self, identifier: int, hook: Hook) -> None:
        self._health.hooks[identifier] = hook

    def unregisterAbortHook(self, identifier: int) -> None:
        self._health.hooks.pop(identifier, None)

    # Torch calls these where its process groups say _start_coalescing and _end_coalescing.

    def start_coalescing(self) -> None:
        self._start_coalescing(torch.device("cpu"))

    def end_coalescing(self) -> Any:
        return self._end_coalescing(torch.device("cpu"))

    def monitored_barrier(self, options: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; takes torch's options, or a timeout as gloo's own method does."""
        timeout: timedelta | None = getattr(options, "timeout", options)
        is_set = timeout is not None and timeout >= timedelta(0)
        limit = timeout if is_set else self._timeout
        self._serving()._inner("cpu").monitored_barrier(limit, wait_all_ranks)


def _kind_of(error: Error | None) -> str:
    """The name in torch's `ErrorType`."""
    if error is None:
        return "SUCCESS"
    if isinstance(error, Timeout):
        return "TIMEOUT"
    return "REMOTE_ERROR" if isinstance(error, PeerLost) else "COMM_ERROR"
