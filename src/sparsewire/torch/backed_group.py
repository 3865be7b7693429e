"""The process group that torch 2.14 and newer get where sparsewire serves all devices.

It is torch's own, with our backend in it; only, its methods give Python the backend's works and
not torch's wrappers of them. Each call goes through torch, so that its hooks and its flight
recorder see it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from sparsewire.torch import handed
from sparsewire.torch.engine_backend import EngineBackend
from sparsewire.torch.forwarding import RENAMED, SAME
from sparsewire.torch.member import NAME
from sparsewire.torch.untraced import untraced

# What torch does not pass on to backends that are written in Python.
DIRECT = ("_start_coalescing", "_end_coalescing", "gather_single", "gather_into_tensor")
# What it does. The old names of some are not here: torch looks for an override by these as well,
# and would call it where it should end.
PASSED_ON = {*SAME, *RENAMED, "allreduce", "allreduce_coalesced", "barrier", "broadcast"}
PASSED_ON -= {*DIRECT, "monitored_barrier"}


class BackedGroup(dist.ProcessGroup):
    """One rank's end of a process group. All members make it together."""

    def __init__(self, store: Store, backend: EngineBackend) -> None:
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
        return self._member.has_aggregators


def _pass_on(name: str) -> Any:
    through_torch = getattr(dist.ProcessGroup, name)

    def collective(self: BackedGroup, *args: Any, **kwargs: Any) -> Any:
        return handed.take(through_torch(self, *args, **kwargs))

    # By this name of the caller torch knows that it was called from the override of its method,
    # and does not call that again.
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
