"""What the engine does not serve: a table of those collectives, and the inner backends that do.

These are gloo for CPU tensors, from the start, and NCCL once a CUDA tensor comes. To make gloo is
to listen, and to leave an address in the store: it waits for nobody. Made at the first call, it
would keep callers waiting for ranks that are elsewhere, as senders are ahead of receivers.
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

# What torch calls a process group, and what backends call it.
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
# Torch 2.13 renamed a few of the group's; backends kept the old ones.
RENAMED = {
    "all_gather_single": "_allgather_base",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
# Forms over lists of tensors that backends do not show to Python: one call for each pair.
PAIRWISE = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}

# What concerns two ranks. Gloo takes the addresses of tensors for those of host memory.
POINT_TO_POINT = ("send", "recv", "recv_anysource")

# All others write the tensors of their first argument.
ONLY_READ = ("send",)


def device_of(arguments: Iterable[Any]) -> torch.device:
    """Device of the first tensor among the arguments, however nested; the CPU without any."""
    tensor = next(_tensors(arguments), None)
    return torch.device("cpu") if tensor is None else tensor.device


def peers_of(name: str, arguments: Iterable[Any]) -> tuple[int, ...] | None:
    """The ranks that a call concerns beside the caller's; None: all.

    Of a receive from any rank nobody knows them. NCCL has none, and says so.
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
    """Have torch.compile call `function` as it is: it looks like tensor code to it, and is not."""
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)


class InnerBackends:
    """What serves a group's calls that the engine does not."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        """Make gloo, which connects at its first calls. All ranks make theirs."""
        self._arguments = (store, rank, size)
        self._making = threading.Lock()
        self._made: dict[str, Backend] = {"gloo": _gloo(store, rank, size, timeout)}
        self._gone: Backend = None

    @property
    def gloo(self) -> Backend:
        return self._made.get("gloo", self._gone)

    def has_nccl(self, device_type: str) -> bool:
        """Whether NCCL is there, and for tensors of this device type."""
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
        """The backend for tensors of this device type, where it does not go through the host."""
        backend = self.of(device_type)
        return None if backend is self.gloo else backend

    def make_nccl(self, store: Store, rank: int, size: int) -> Backend:
        """One more, for some of the ranks; whoever makes it closes it."""
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
        """Fail what is in flight, where the backends can."""
        for backend in self._made.values():
            backend.abort()

    def disown(self) -> None:
        """In a forked child: leave the backends to the parent; what is called here raises."""
        for backend in self._made.values():
            # It would wait for threads that are not here.
            never_free(backend)
        self._made, self._gone = {}, Inherited(PROCESS_GROUP)
        self._making = threading.Lock()


def _gloo(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """A gloo backend, which listens on the address that the engine listens on."""
    backend: Any = dist.ProcessGroupGloo
    options = backend._Options()
    options._timeout = timeout
    # Gloo's own choice is what the host's name means, which often is loopback. Few groups forward
    # anything, so that pairs of ranks connect when they need it. A device then knows pairs by their
    # ranks alone, so that groups cannot share one.
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
    """The class of NCCL's backends as one that torch does not split.

    What it may split, torch before 2.14 connects as soon as it is told the device: even where the
    engine is to serve ranks that share a GPU, which NCCL refuses.
    """
    return type(kind.__name__, (kind,), {"supports_splitting": property(lambda self: False)})


class Forwarding:
    """Every collective of a process group that the engine has no part in, as calls to a backend."""

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
        """See every work on its way out; None is none."""
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
            # The first, as others may copy what it ends.
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
