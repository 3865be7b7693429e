"""The communicator's collectives on tensors of devices, which are staged in the caller's thread.

The first call that needs this module imports it, and torch with it. Process groups do more, in
threads of their own (`torch/device/device_path.py`), and choose the path by the same `Stager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from sparsewire.collectives.request import Request
from sparsewire.collectives.views import check_gradient, dense_code, torch_code
from sparsewire.device.accelerator import ACCELERATORS, Event
from sparsewire.device.choice import SMALLEST, Chooser, Kind, Turn, deciding
from sparsewire.device.path_cost import Path, Speeds
from sparsewire.device.speeds import measure_copies
from sparsewire.device.staging import Staging, Stagings
from sparsewire.device.transfer import (
    PackedTransfer,
    SparseTransfer,
    Transfer,
    WholeTransfer,
    called,
)
from sparsewire.errors import Error, InputError, MismatchError
from sparsewire.work import Work

_SKIP_ZEROS = {"sum", "avg"}
_REFUSED = (MismatchError, InputError)
"""Errors that end one call on every rank, and leave the communicator usable."""
AllReduce = Callable[..., Any]
Start = Callable[[Request, float | None], Work]
Watching = Callable[[], AbstractContextManager[None]]


class Stager:
    """Chooses how dense tensors go to the host. All ranks make it together.

    `others` has the figures of other paths: `inner_s` and the following fields of `Speeds`.
    """

    def __init__(
        self,
        all_reduce: AllReduce,
        world_size: int,
        network_s: float,
        staging: Staging,
        **others: float,
    ) -> None:
        self._all_reduce = all_reduce
        mine = np.array(Speeds(*measure_copies(staging), network_s, **others))
        # All ranks use the figures of the slowest rank.
        self.speeds = Speeds(*all_reduce(mine, "max").tolist())
        self.chooser = Chooser(world_size, self.speeds)

    def take_turn(self, tensor: torch.Tensor, op: str) -> Turn | None:
        """This call's part in a choice, taken in the program's order; None: no choice, go whole."""
        if op not in _SKIP_ZEROS or tensor.numel() < SMALLEST:
            return None
        return self.chooser.take_turn(Kind(tensor.dtype, tensor.numel()))

    def kind(
        self, staging: Staging, tensor: torch.Tensor, turn: Turn | None, timeout: float | None
    ) -> type[PackedTransfer | WholeTransfer]:
        """The transfer that brings the tensor to the host; collective if the turn samples."""
        if turn is None:
            return WholeTransfer
        if turn.samples:
            sample = PackedTransfer(staging, tensor).sample
            self.chooser.decide(turn, sample, partial(self._all_reduce, timeout=timeout))
        elif isinstance(turn.decision.exception(), _REFUSED):
            # Each call is one collective, also if other ranks did not sample.
            return WholeTransfer
        is_packed = turn.decision.result().engine_path is Path.PACKED
        return PackedTransfer if is_packed else WholeTransfer

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the program's wait for a call: forget all choices if the call ends in `_REFUSED`.

        All ranks get this error at one point of the program, whatever else is in flight.
        """
        try:
            yield
        except _REFUSED:
            self.chooser.begin_anew()
            raise


def refuse_capture(device: torch.device) -> None:
    """Raise Error while a graph is captured, because a graph cannot repeat the host's work."""
    if ACCELERATORS[device.type].is_capturing(device):
        raise Error(
            f"a graph is being captured on {device}, and this call goes through the host, which no "
            "graph runs again: call it outside of the graph, or have NCCL serve a process group "
            "(SPARSEWIRE_CUDA=nccl)"
        )


class StagedWork:
    """A `Work` of a collective on a tensor of a device."""

    def __init__(
        self, work: Work, transfer: Transfer, result: Callable[[], Any], watching: Watching
    ) -> None:
        self._watching = watching
        self._work = work.deliver_to(transfer.receive)
        self._transfer = transfer
        self._result = result
        # Even if nobody waits, the result comes back, and host memory is let go of.
        work.add_done_callback(self._end)

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the copy back is enqueued, and return the result; raises like `Work.wait`.

        The caller's current stream waits for the end of the copy.
        """
        with self._watching():
            there: Event = self._work.wait(timeout)
        self._transfer.lead_caller(there)
        return self._result()

    def is_completed(self) -> bool:
        """Whether the collective has succeeded or failed; its result may still be on its way."""
        return self._work.is_completed()

    def exception(self) -> Exception | None:
        """The error of a collective that failed; None if it succeeded or has not ended."""
        return self._work.exception()

    def add_done_callback(self, callback: Callable[[StagedWork], object]) -> None:
        """Like `Work.add_done_callback`."""
        self._work.add_done_callback(lambda _: callback(self))

    def _end(self, work: Work) -> None:
        self._transfer.staging.accelerator.ignore_captures()
        if work.exception() is None:
            work.wait()
        else:
            self._transfer.drop()


class StagedCalls:
    """A communicator's calls with tensors of devices. All ranks make the same calls."""

    def __init__(
        self, start_dense: Start, start_sparse: Start, make_stager: Callable[[Staging], Stager]
    ) -> None:
        """The first two start a request whose input is on the host; they also take a timeout."""
        self._start_dense, self._start_sparse = start_dense, start_sparse
        self._make_stager = make_stager
        self._stagings = Stagings()
        self._stager: Stager | None = None

    def dense(self, request: Request, timeout: float | None) -> StagedWork:
        """An all_reduce of a dense tensor; the result is written to `x` or `out`.

        Raises TypeError and ValueError for tensors and options that the engine does not take, and
        Error while a graph is captured.
        """
        x, out = request.x, request.out
        tensor = tensor_of(x)
        refuse_capture(tensor.device)
        dense_code(request.op, torch_code(tensor.dtype))
        target = tensor if out is None else _copied(tensor, tensor_of(out))
        staging = self._stagings.of(target.device)
        if self._stager is None:
            self._stager = self._make_stager(staging)
        # Sparse vectors are quantised by other rules than dense arrays.
        packs = request.precision is None
        turn = self._stager.take_turn(target, request.op) if packs else None
        with self._watching(), deciding(turn):
            called(staging, target).synchronize()
            transfer = self._stager.kind(staging, target, turn, timeout)(staging, target)
        result = x if out is None else out
        return self._begun(request._replace(out=None), timeout, transfer, lambda: result)

    def sparse(self, request: Request, timeout: float | None) -> StagedWork:
        """Any collective of a sparse_coo tensor."""
        x = request.x
        refuse_capture(x.device)
        staging = self._stagings.of(x.device)
        called(staging, x).synchronize()
        transfer = SparseTransfer(staging, x)
        return self._begun(request, timeout, transfer, lambda: transfer.result)

    def _watching(self) -> AbstractContextManager[None]:
        return nullcontext() if self._stager is None else self._stager.watching()

    def _begun(
        self,
        request: Request,
        timeout: float | None,
        transfer: Transfer,
        result: Callable[[], Any],
    ) -> StagedWork:
        try:
            on_host = transfer.send()
            brought = request._replace(x=on_host, **transfer.arguments)
            is_sparse = on_host.layout is torch.sparse_coo
            work = (self._start_sparse if is_sparse else self._start_dense)(brought, timeout)
        except BaseException:
            transfer.drop()
            raise
        return StagedWork(work, transfer, result, self._watching)


def tensor_of(x: Any) -> torch.Tensor:
    """A tensor over the memory of `x`; raises TypeError and ValueError for unusable arrays."""
    if not isinstance(x, torch.Tensor):
        # DLPack handles streams; the CUDA array interface leaves them to the caller.
        x = from_dlpack(x) if hasattr(x, "__dlpack__") else torch.as_tensor(x)
    if x.device.type not in ACCELERATORS:
        raise ValueError(f"the tensor is on {x.device}: pass one that is on the device of x")
    if x.layout is not torch.strided:
        raise TypeError(f"the tensor has layout {x.layout}: pass x.to_dense()")
    check_gradient(x)
    tensor: torch.Tensor = x
    return tensor


def _fitting(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.numel(), tensor.device


def _copied(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Copy `source` to `target`, and return `target`; raises ValueError if it does not fit."""
    if _fitting(source) != _fitting(target):
        raise ValueError(
            f"out must have the dtype, size and device of x: x has {source.numel()} elements of "
            f"{source.dtype} on {source.device}, out has {target.numel()} of {target.dtype} on "
            f"{target.device}"
        )
    with torch.no_grad():
        target.copy_(source.reshape(target.shape))
    return target
