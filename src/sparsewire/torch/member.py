"""One rank's end of a process group: the engine serves the calls it can, inner backends all others.

Torch calls it in one of two forms (`backed_group`).
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, ReduceOptions, Store

import sparsewire
from sparsewire.device.accelerator import ACCELERATORS, is_on_device
from sparsewire.errors import Error
from sparsewire.lifetime import (
    PROCESS_GROUP,
    close_at_exit,
    closes_now,
    disown_in_child,
    is_part,
    never_free,
)
from sparsewire.options import BACKEND as NAME
from sparsewire.torch.calls import engine_path
from sparsewire.torch.calls.first_calls import FirstCalls
from sparsewire.torch.calls.forwarding import Forwarding, InnerBackends, untraced
from sparsewire.torch.calls.futures import Callbacks, current_level
from sparsewire.torch.calls.profiling import event
from sparsewire.torch.calls.work import EngineWork, Health
from sparsewire.torch.device.device_path import DevicePath
from sparsewire.torch.device.device_queue import Handle, Prepare
from sparsewire.torch.device.device_service import DeviceService
from sparsewire.torch.device.device_work import DeviceWork
from sparsewire.torch.device.message_channel import MessageChannel
from sparsewire.torch.monitored_barrier import MonitoredBarrier

Options = TypeVar("Options")
Start = Callable[[sparsewire.Communicator, float], sparsewire.Work]
DeviceStart = Callable[..., Handle | None]
_OF_THE_GROUP = timedelta(seconds=-1)


class Member(Forwarding):
    """The common part of both forms. A subclass is also torch's class, which knows rank and size.

    `level` is 0 for a group that users have. Calls from callbacks of futures go to a nested group
    of the next level, because their order among the main thread's calls differs between ranks.
    """

    rank: Callable[[], int]
    size: Callable[[], int]
    _latest: weakref.ref[EngineWork] | None = None

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, level: int = 0
    ) -> None:
        """Connect to the other members; raises `sparsewire.Error` if that fails."""
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._store = store
        self._level = level
        self._nested: Member | None = None
        self._nesting = threading.Lock()
        self._callbacks = Callbacks(level + 1)
        self._first_calls = FirstCalls(self._callbacks)
        self._monitored_barrier = MonitoredBarrier(store, rank, size)
        self._health = Health()
        # The engine is first, because it finds out at once if ranks cannot reach each other.
        self.communicator = sparsewire.init(
            PrefixStore("sparsewire", store),
            rank=rank,
            world_size=size,
            timeout=timeout.total_seconds(),
        )
        try:
            self._inner_backends = InnerBackends(store, rank, size, timeout)
        except BaseException:
            self.communicator.close()
            raise
        self._devices = DeviceService(
            self.communicator, store, self._inner_backends, lambda: self._timeout
        )
        self._channel = MessageChannel(
            PrefixStore("messages", store), rank, size, lambda: self._seconds(_OF_THE_GROUP)
        )
        close_at_exit(self.shutdown)
        is_part(self.communicator.engine, PROCESS_GROUP)
        disown_in_child(self)
        self._present(timeout)

    def _present(self, timeout: timedelta) -> None:
        """Set up the attributes that torch looks for in a group, or in a backend."""
        raise NotImplementedError

    def getBackendName(self) -> str:
        return NAME

    @property
    def has_aggregators(self) -> bool:
        """Whether ranks are connected with dedicated aggregators, and not with each other."""
        return self.communicator.has_aggregators

    @property
    def _timeout(self) -> timedelta:
        """The time limit of calls without a limit of their own."""
        # Torch changes a group's timeout without telling it, in the inner backend.
        return self._inner_backends.timeout

    def _serving(self) -> Member:
        group = self
        for _ in range(current_level() - self._level):
            group = group._nested_group()
        return group

    def _nested_group(self) -> Member:
        with self._nesting:
            if self._nested is None:
                store = PrefixStore("callbacks", self._store)
                self._nested = type(self)(
                    store, self.rank(), self.size(), self._timeout, self._level + 1
                )
                self._nested._health = self._health
            return self._nested

    @property
    def device_path(self) -> DevicePath | None:
        """The path of tensors on devices; None before the first such tensor."""
        return self._devices.path

    def _inner(self, device: torch.device, peers: Sequence[int] | None = None) -> Any:
        """Like the base class, but gloo serves CUDA if NCCL would refuse ranks that share a GPU."""
        has_nccl = self._inner_backends.has_nccl(device.type)
        if has_nccl and self._devices.nccl_refuses(device, peers):
            return self._inner_backends.gloo
        return super()._inner(device, peers)

    def set_timeout(self, timeout: timedelta) -> None:
        self._inner_backends.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self._inner_backends.gloo._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        number: int = self._inner_backends.gloo._get_sequence_number_for_group()
        return number

    def failure(self) -> Error | None:
        """The error that ended this group's communicator, as far as this rank knows; else None."""
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.exception()
        return self._health.error

    def shutdown(self) -> None:
        """Leave the group: end all calls in flight and close all connections. Idempotent."""
        if self._nested is not None:
            self._nested.shutdown()
        self.communicator.close()
        self._devices.close()
        self._channel.close()
        self._callbacks.close()
        self._inner_backends.shutdown()
        closes_now(self.shutdown)

    def disown(self) -> None:
        """In a forked child: leave the group to the parent. Later calls raise Error."""
        self._nesting = threading.Lock()
        self._callbacks = Callbacks(self._level + 1)
        self._first_calls = FirstCalls(self._callbacks)
        self._devices.disown()
        self._channel.disown()
        self._inner_backends.disown()
        never_free(self)

    def abort(self) -> None:
        """Fail all calls in flight, here and on the other ranks, then leave the group."""
        if self._level == 0:
            self._health.run_hooks()
        if self._nested is not None:
            self._nested.abort()
        message = f"rank {self.rank()} aborted its process group"
        self.communicator.abort(message)
        self._devices.abort(message)
        self._channel.abort(message)
        self._inner_backends.abort()
        self.shutdown()

    def send_messages(self, tensor: torch.Tensor, prepare: Prepare) -> DeviceWork:
        """Exchange the messages of transfers: each rank's transfer receives those of all ranks.

        The transfers read and write `tensor`, on its device; it is the work's result.
        """
        group = self._serving()
        handle = group._channel.submit(tensor, prepare)
        work = DeviceWork([handle], [tensor], group._callbacks, group._health)
        group._latest = weakref.ref(work)
        return work

    @untraced
    def allreduce(
        self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> dist.Work:
        """Reduce in place over all ranks: a tensor, or a list of one."""
        tensors = _listed(tensors)
        options = _joined(dist.AllreduceOptions, "reduceOp", opts, timeout, op)
        # To backends, several tensors here also mean a sum over these tensors.
        return self._reduce("allreduce", tensors, options, engine_takes=len(tensors) == 1)

    @untraced
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Reduce each of several tensors in place over all ranks."""
        options = dist.AllreduceCoalescedOptions() if opts is None else opts
        return self._reduce("allreduce_coalesced", tensors, options)

    @untraced
    def broadcast(
        self,
        tensors: Any,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> dist.Work:
        """Copy a tensor, or a list of one, from rank `rootRank` to all others."""
        tensors = _listed(tensors)
        options = _joined(dist.BroadcastOptions, "rootRank", opts, timeout, root)
        group = self._serving()
        if len(tensors) != 1 or not engine_path.can_read(tensors[0]):
            return group._call_inner("broadcast", tensors, options)
        if is_on_device(tensors[0]):
            give = partial(DevicePath.broadcast, tensor=tensors[0], root=options.rootRank)
            work = group._serve_on_device(tensors, options.timeout, give)
            return work or group._call_inner("broadcast", tensors, options)
        start = partial(engine_path.broadcast, tensors[0], options.rootRank)
        return group._serve(tensors, options.timeout, start)

    @untraced
    def barrier(
        self, opts: dist.BarrierOptions | None = None, timeout: timedelta | None = None
    ) -> dist.Work:
        """End once every rank has called it."""
        if opts is None or opts.device is None or opts.device.type == "cpu":
            return self.allreduce(_token("cpu"), None, opts.timeout if opts else timeout)
        group = self._serving()
        if group.communicator.cuda == "engine" and opts.device.type in ACCELERATORS:
            return self.allreduce(_token(opts.device), None, opts.timeout)
        return group._record(group._inner(opts.device).barrier(opts))

    @untraced
    def monitored_barrier(self, options: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks. `options` are torch's, or a timeout, as in gloo's own method."""
        timeout: timedelta | None = getattr(options, "timeout", options)
        group = self._serving()
        if timeout is None or timeout < timedelta(0):
            timeout = group._timeout
        group._monitored_barrier.wait(timeout, group._timeout, wait_all_ranks)

    @untraced
    def allgather(self, *args: Any, **kwargs: Any) -> Any:
        """Give each rank the tensors of all ranks; sparse ones as `dist.all_gather` passes them."""
        if len(args) < 2 or not _is_one_sparse(args[1]):
            return super().allgather(*args, **kwargs)
        (outputs,), (tensor,), *options = args
        timeout = (options[0] if options else AllgatherOptions()).timeout
        group = self._serving()
        if is_on_device(tensor):
            gather = partial(DevicePath.all_gather, tensor=tensor, outputs=outputs)
            work = group._serve_on_device(outputs, timeout, gather)
            return work or super().allgather(*args, **kwargs)
        start = partial(engine_path.all_gather, tensor, outputs)
        return group._serve(outputs, timeout, start)

    @untraced
    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        """Reduce a tensor to one rank; a sparse one as `dist.reduce` passes it."""
        op = _sparse_operation(*args)
        if op is None:
            return super().reduce(*args, **kwargs)
        (tensor,), options = args
        group = self._serving()
        if is_on_device(tensor):
            to_root = partial(DevicePath.reduce, tensor=tensor, op=op, root=options.rootRank)
            work = group._serve_on_device([tensor], options.timeout, to_root)
            return work or super().reduce(*args, **kwargs)
        start = partial(engine_path.reduce, tensor, op, options.rootRank)
        return group._serve([tensor], options.timeout, start)

    def _reduce(
        self, name: str, tensors: list[torch.Tensor], options: Any, engine_takes: bool = True
    ) -> dist.Work:
        """Have the engine serve the call, else method `name` of the inner backend."""
        group = self._serving()
        op = engine_path.operation(tensors, options.reduceOp.op) if engine_takes else None
        if op is None:
            return group._call_inner(name, tensors, options)
        if is_on_device(tensors[0]):
            # Several tensors are one call: all of them take one path.
            takes = partial(DevicePath.all_reduce, op=op, may_decline=len(tensors) == 1)
            reduces = [partial(takes, tensor=tensor) for tensor in tensors]
            work = group._serve_on_device(tensors, options.timeout, *reduces)
            return work or group._call_inner(name, tensors, options)
        starts = [partial(engine_path.all_reduce, tensor, op) for tensor in tensors]
        return group._serve(tensors, options.timeout, *starts)

    def _serve(
        self, tensors: Sequence[torch.Tensor], timeout: timedelta, *starts: Start
    ) -> dist.Work:
        """Have the engine write `tensors`; `timeout` below zero: the group's, zero: no limit."""
        seconds = self._seconds(timeout)
        with event(_name_of(starts[0])):
            handles = [start(self.communicator, seconds) for start in starts]
        return self._issued(EngineWork(handles, tensors, self._callbacks, self._health))

    def _serve_on_device(
        self, tensors: Sequence[torch.Tensor], timeout: timedelta, *starts: DeviceStart
    ) -> dist.Work | None:
        """Like `_serve`, for tensors on a device; None if the inner backend is to serve."""
        path = self._devices.path_for(tensors[0].device)
        if path is None:
            return None
        seconds = self._seconds(timeout)
        started = [start(path, timeout=seconds) for start in starts]
        handles = [handle for handle in started if handle is not None]
        if not handles:
            return None
        return self._issued(DeviceWork(handles, tensors, self._callbacks, self._health))

    def _seconds(self, timeout: timedelta) -> float:
        limit = timeout if timeout >= timedelta(0) else self._timeout
        return limit.total_seconds() or math.inf

    def _issued(self, work: EngineWork) -> dist.Work:
        self._latest = weakref.ref(work)
        return self._record(work)


def _token(device: torch.device | str) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


def _name_of(start: Start) -> str:
    name: str = getattr(start, "func", start).__name__
    return name


def _listed(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _joined(
    kind: type[Options], name: str, options: Any, timeout: timedelta | None, value: Any
) -> Options:
    """The options of a collective, of torch's overloads: options, or one option and a timeout.

    `name` is the name of that one option, which is passed in the place of `options`, or as `value`.
    """
    if isinstance(options, kind):
        return options
    made: Any = kind()
    chosen = value if options is None else options
    if chosen is not None:
        setattr(made, name, chosen)
    if timeout is not None:
        made.timeout = timeout
    return made  # type: ignore[no-any-return]


def _is_one_sparse(tensors: Any) -> bool:
    one = isinstance(tensors, list | tuple) and len(tensors) == 1
    return one and engine_path.is_sparse(tensors[0])


def _sparse_operation(tensors: Any = None, options: Any = None, *others: Any) -> str | None:
    """The engine's name of the operation, or None if the call is not for the engine."""
    if not (_is_one_sparse(tensors) and isinstance(options, ReduceOptions)):
        return None
    return engine_path.operation(tensors, options.reduceOp.op)  # type: ignore[attr-defined]
