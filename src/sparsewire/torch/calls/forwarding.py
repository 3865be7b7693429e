"""Collectives that the engine does not serve: a table of them, and inner backends that serve them.

The backends are gloo for CPU tensors, from the start, and NCCL once a CUDA tensor comes. Gloo is
made at the start because that waits for nobody: gloo listens, and leaves an address in the store.
If it were made at the first call, senders would wait for receivers that are still elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.device.accelerator import ACCELERATORS
from sparsewire.lifetime import PROCESS_GROUP, Inherited, never_free
from sparsewire.meeting.contact.sockets import local_address
from sparsewire.torch.calls import first_calls
from sparsewire.torch.calls.first_calls import FirstCalls
from sparsewire.torch.calls.futures import Callbacks
from sparsewire.torch.calls.plain_call import call_plainly
from sparsewire.torch.calls.work import Together, hand_over

# Torch's own stubs leave out most methods of its backends.
Backend: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])

# Collectives with one name in process groups of torch and in backends.
SAME = (
    "allgather",
    "allgather_coalesced",
    "alltoall",
    "gather",
    "gather_into_tensor",
    "gather_single",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
)
# Torch 2.13 renamed a few methods of groups; backends kept the old names.
RENAMED = {
    "all_gather_single": "_allgather_base",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
# Forms with lists of tensors, which backends do not show to Python: one call for each pair.
PAIRWISE = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}

# Calls of two ranks. Gloo takes the addresses of tensors for addresses of host memory.
POINT_TO_POINT = ("send", "recv", "recv_anysource")

# All other calls write the tensors of their first argument.
ONLY_READ = ("send",)


def device_of(arguments: Iterable[Any]) -> torch.device:
    """Device of the first tensor in the arguments, nested or not; the CPU if there is none."""
    tensor = next(_tensors(arguments), None)
    return torch.device("cpu") if tensor is None else tensor.device


def peers_of(name: str, arguments: Iterable[Any]) -> tuple[int, ...] | None:
    """The ranks in a call other than the caller's; None: all.

    In a receive from any rank, the peer is unknown: (). NCCL has no such call, and says so.
    """
    if name == "recv_anysource":
        return ()
    if name not in POINT_TO_POINT:
        return None
    return (next(argument for argument in arguments if isinstance(argument, int)),)


def _tensors(arguments: Iterable[Any]) -> Any:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(argument)


def untraced(function: Function) -> Function:
    """Have torch.compile call `function` as it is, since it only looks like tensor code."""
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)


class InnerBackends:
    """The backends for a group's calls that the engine does not serve."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        """Make gloo, which connects at its first calls. All ranks make one."""
        self._arguments = (store, rank, size)
        self._making = threading.Lock()
        self._made: dict[str, Backend] = {"gloo": _gloo(store, rank, size, timeout)}
        self._gone: Backend = None

    @property
    def gloo(self) -> Backend:
        return self._made.get("gloo", self._gone)

    def has_nccl(self, device_type: str) -> bool:
        """Whether NCCL is available, and takes tensors of this device type."""
        return device_type == "cuda" and torch.cuda.is_available() and dist.is_nccl_available()

    def of(self, device_type: str) -> Backend:
        """The backend for tensors of this device type; gloo on a machine without NCCL."""
        if not self.has_nccl(device_type):
            return self.gloo
        with self._making:
            if "nccl" not in self._made:
                self._made["nccl"] = _nccl(*self._arguments, self.timeout)
            return self._made["nccl"]

    def nccl(self, device_type: str) -> Backend | None:
        """The backend for tensors of this device type; None if it goes through the host."""
        backend = self.of(device_type)
        return None if backend is self.gloo else backend

    def make_nccl(self, store: Store, rank: int, size: int) -> Backend:
        """Another NCCL backend, for some of the ranks; the caller must close it."""
        return _nccl(store, rank, size, self.timeout)

    @property
    def timeout(self) -> timedelta:
        timeout: timedelta = self.gloo.options._timeout
        return timeout

    def set_timeout(self, timeout: timedelta) -> None:
        for backend in self._made.values():
            backend.options._timeout = timeout

    def shutdown(self) -> None:
        """Close all connections. Idempotent."""
        for backend in self._made.values():
            backend.shutdown()

    def abort(self) -> None:
        """Fail the calls in flight of backends that can."""
        for backend in self._made.values():
            backend.abort()

    def disown(self) -> None:
        """In a forked child: leave the backends to the parent. Later calls raise Error."""
        for backend in self._made.values():
            # Freeing it would wait for threads that the child does not have.
            never_free(backend)
        self._made, self._gone = {}, Inherited(PROCESS_GROUP)
        self._making = threading.Lock()


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """A gloo backend, which listens on the same address as the engine."""
    backend: Any = dist.ProcessGroupGloo
    options = backend._Options()
    options._timeout = timeout
    # Gloo itself would take the address of the host's name, which often is loopback. Few groups
    # forward calls, so pairs of ranks connect only when needed (`lazy_init`). A device then knows
    # pairs by their ranks alone, so groups cannot share a device.
    device = backend.create_device(hostname=local_address(os.environ), lazy_init=True)
    options._devices = [device]
    return backend(PrefixStore("gloo", store), rank, size, options)


def _nccl(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """An NCCL backend, which connects at its first call."""
    options: Any = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return _undivided(dist.ProcessGroupNCCL)(PrefixStore("nccl", store), rank, size, options)


@cache
def _undivided(kind: Any) -> Any:
    """The class of NCCL's backends, changed so that torch does not split them.

    Torch before 2.14 connects backends that it may split as soon as it knows the device. It would
    do so even if ranks share a GPU, which NCCL refuses, and the engine is to serve them.
    """
    return type(kind.__name__, (kind,), {"supports_splitting": property(lambda self: False)})


class Forwarding:
    """Forwards to a backend every collective of a process group that the engine does not serve."""

    _callbacks: Callbacks
    _inner_backends: InnerBackends
    _first_calls: FirstCalls
    _coalescing: list[dist.Work] | None = None

    if TYPE_CHECKING:  # Made from the tables above.

        def allgather(self, *args: Any, **kwargs: Any) -> Any: ...

        def reduce(self, *args: Any, **kwargs: Any) -> Any: ...

    def _serving(self) -> Forwarding:
        """The group that serves the calling thread."""
        raise NotImplementedError

    def _inner(self, device: torch.device, peers: Sequence[int] | None = None) -> Backend:
        """The inner backend for tensors on this device, in a call with these peers, or with all."""
        return self._inner_backends.of(device.type)

    def _call_inner(self, name: str, *args: Any, **kwargs: Any) -> dist.Work:
        """Have the inner backend serve a call, by the backend's name of it."""
        values = (*args, *kwargs.values())
        inner = self._inner(device_of(values), peers_of(name, values))
        if name in PAIRWISE:
            call = partial(_in_pairs, getattr(inner, PAIRWISE[name]), self._callbacks)
        else:
            call = getattr(inner, name)
        is_gloo = inner is self._inner_backends.gloo
        if name in first_calls.CALLS and is_gloo:
            call = partial(self._first_calls.start, call)
        takes = {"writes": name not in ONLY_READ, "on_host": is_gloo and name in POINT_TO_POINT}
        return self._record(call_plainly(call, self._callbacks, args, kwargs, **takes))

    def _record(self, work: Any) -> dist.Work:
        """Note and hand over a work that goes to the caller; `work` may be None."""
        if work is not None:
            if self._coalescing is not None:
                self._coalescing.append(work)
            hand_over(work)
        return work  # type: ignore[no-any-return]

    def _start_coalescing(self, device: torch.device) -> None:
        group = self._serving()
        backend = group._inner(device)
        if backend.supports_coalescing:
            backend._start_coalescing()
        group._coalescing = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        group = self._serving()
        works, group._coalescing = group._coalescing or [], None
        backend = group._inner(device)
        if backend.supports_coalescing:
            # This work comes first, because others may copy its results.
            works.insert(0, backend._end_coalescing())
        accelerator = ACCELERATORS.get(device.type)
        devices = [] if accelerator is None else accelerator.future_devices(device)
        return group._record(Together(works, [], group._callbacks, devices))


def _forward(name: str, inner_name: str) -> Any:
    def collective(self: Forwarding, *args: Any, **kwargs: Any) -> Any:
        group = self._serving()
        return group._call_inner(inner_name, *args, **kwargs)

    collective.__name__ = name
    collective.__qualname__ = f"Forwarding.{name}"
    return untraced(collective)


def _in_pairs(
    call: Any, callbacks: Callbacks, outputs: Any, inputs: Any, *args: Any, **kwargs: Any
) -> Together:
    works = [call(*pair, *args, **kwargs) for pair in zip(outputs, inputs, strict=True)]
    return Together(works, outputs, callbacks)


for _old in (*SAME, *RENAMED.values()):
    setattr(Forwarding, _old, _forward(_old, _old))
for _new, _old in RENAMED.items():
    setattr(Forwarding, _new, _forward(_new, _old))
