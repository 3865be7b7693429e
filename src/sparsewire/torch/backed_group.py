"""The forms of a member that torch takes: before 2.14 a process group of ours, from 2.14 a backend.

A backend that serves all devices is in a group of ours, a subclass of torch's. The group's methods
return the backend's works, and not torch's wrappers of them. Each call goes through torch, so that
torch's hooks and its flight recorder see the call.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import Store

from sparsewire.errors import PeerLost, Timeout
from sparsewire.options import BACKEND as NAME
from sparsewire.torch.calls.forwarding import RENAMED, SAME, untraced
from sparsewire.torch.calls.work import Hook, handed_over
from sparsewire.torch.member import Member

# Torch's stubs of older versions do not know that backends can be written in Python.
_c10d: Any = c10d
_Backend: Any = _c10d.Backend
_ERROR_TYPES: dict[type, str] = {Timeout: "TIMEOUT", PeerLost: "REMOTE_ERROR"}

# Calls that torch does not pass on to backends that are written in Python.
DIRECT = ("_start_coalescing", "_end_coalescing", "gather_single", "gather_into_tensor")
# Calls that torch passes on. Some old names are left out: torch looks for an override by the old
# names as well, and would call it again without end.
PASSED_ON = {*SAME, *RENAMED, "allreduce", "allreduce_coalesced", "barrier", "broadcast"}
PASSED_ON -= {*DIRECT}


class Group(Member, dist.ProcessGroup):  # type: ignore[misc]
    """One rank's end of a process group. All members make it together.

    Torch's own versions of collectives would call back into this class through C++, so every
    single version is overridden.
    """

    def _present(self, timeout: timedelta) -> None:
        cpu, cuda = self._inner_backends.gloo, self._inner_backends.of("cuda")
        self._register_backend(torch.device("cpu"), self.BackendType.CUSTOM, cpu)
        self._set_default_backend(self.BackendType.CUSTOM)
        if cuda is not cpu:
            self._register_backend(torch.device("cuda"), self.BackendType.NCCL, cuda)

    def get_group_store(self) -> Store:
        return self._store


class Described(_Backend):  # type: ignore[misc]
    """What torch asks any backend of ours.

    The properties override torch's, which would ask this class again, without end.
    """

    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: True)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_abort_hooks = property(lambda self: True)
    _supports_time_estimate = property(lambda self: False)

    def describe(self, timeout: timedelta) -> None:
        self._options = _Backend.Options(NAME, timeout=timeout)

    @property
    def options(self) -> Any:
        """The options that torch reads of every backend: its name and its timeout."""
        return self._options

    @property
    def _timeout(self) -> timedelta:
        timeout: timedelta = self._options._timeout
        return timeout

    def getBackendName(self) -> str:
        return NAME


class EngineBackend(Member, Described):
    """One rank's end of a process group. All members make it together."""

    def _present(self, timeout: timedelta) -> None:
        self.describe(timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout
        super().set_timeout(timeout)

    def get_error(self) -> Any:
        """Torch's `ErrorType` for the error that ended this group, as far as this rank knows."""
        error = self.failure()
        name = "SUCCESS" if error is None else _ERROR_TYPES.get(type(error), "COMM_ERROR")
        return getattr(_c10d.ErrorType, name)

    def registerAbortHook(self, identifier: int, hook: Hook) -> None:
        self._health.hooks[identifier] = hook

    def unregisterAbortHook(self, identifier: int) -> None:
        self._health.hooks.pop(identifier, None)

    # Torch's process groups call these _start_coalescing and _end_coalescing.

    def start_coalescing(self) -> None:
        self._start_coalescing(torch.device("cpu"))

    def end_coalescing(self) -> Any:
        return self._end_coalescing(torch.device("cpu"))


class BackedGroup(dist.ProcessGroup):
    """One rank's end of a process group. All members make it together."""

    def __init__(self, store: Store, backend: Any) -> None:
        """`backend` is an EngineBackend, or passes calls on to one."""
        super().__init__(store, backend.rank(), backend.size())
        self._member = backend
        kind = self.BackendType.CUSTOM
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
        for device in devices:
            self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        return NAME

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks are connected with dedicated aggregators, and not with each other."""
        has_aggregators: bool = self._member.has_aggregators
        return has_aggregators


def _pass_on(name: str) -> Any:
    through_torch = getattr(dist.ProcessGroup, name)

    def collective(self: BackedGroup, *args: Any, **kwargs: Any) -> Any:
        return handed_over(through_torch(self, *args, **kwargs))

    # Torch finds this name in its caller. So it knows that the override of its method calls it,
    # and does not call the override again.
    collective.__code__ = collective.__code__.replace(co_name=name)
    return untraced(collective)


def _direct(name: str) -> Any:
    def method(self: BackedGroup, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._member, name)(*args, **kwargs)

    return untraced(method)


if hasattr(dist.ProcessGroup, "all_gather_single"):
    for _name in PASSED_ON:
        setattr(BackedGroup, _name, _pass_on(_name))
    for _name in DIRECT:
        setattr(BackedGroup, _name, _direct(_name))
