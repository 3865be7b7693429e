"""The paths of a group for tensors on a device: the engine, packed or whole, or the inner NCCL.

All ranks choose the same path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, NamedTuple

import torch

import sparsewire
from sparsewire.collectives.staged import Stager
from sparsewire.device.choice import Turn, deciding
from sparsewire.device.path_cost import Path
from sparsewire.device.staging import Staging, staging_of
from sparsewire.device.transfer import PackedTransfer, SparseTransfer, Transfer
from sparsewire.errors import Timeout
from sparsewire.torch.calls.engine_path import require_outputs
from sparsewire.torch.device.device_queue import Call, DeviceQueue, Handle
from sparsewire.torch.device.host_level import HostLevel
from sparsewire.torch.device.inner_speed import InnerSpeed
from sparsewire.torch.device.level_transfer import LevelTransfer


class Levels(NamedTuple):
    """The ranks of this host, and the ranks with this rank's place on all hosts."""

    host: HostLevel
    peers: sparsewire.Communicator
    host_speed: InnerSpeed

    def abort(self, message: str) -> None:
        """Fail collectives in flight."""
        self.peers.abort(message)
        self.host.abort()

    def close(self, is_busy: bool) -> None:
        """Leave; collectives in flight fail. Idempotent."""
        self.peers.close()
        if is_busy:
            self.host.abort()
        self.host.shutdown()


def _figures(inner: InnerSpeed | None, levels: Levels | None) -> dict[str, float]:
    """The fields of `Speeds` that describe the inner group and the levels."""
    figures: dict[str, float] = {}
    if inner is not None:
        figures |= {"inner_s": inner.byte_s, "inner_latency_s": inner.latency_s}
    if levels is not None:
        places = levels.host.layout.places
        figures |= {"places": float(places), "host_s": levels.host_speed.byte_s}
    return figures


class DevicePath:
    """One rank's path. All ranks make it at their first tensor on a device.

    `inner` is the measured speed of the inner NCCL group; without it, the engine serves all that it
    can. `levels` are given if the ranks of each host add up dense tensors among themselves first.
    """

    def __init__(
        self,
        communicator: sparsewire.Communicator,
        device: torch.device,
        inner: InnerSpeed | None = None,
        levels: Levels | None = None,
    ) -> None:
        self.communicator = communicator
        self._queue = DeviceQueue(communicator.rank, self.abort)
        self._has_inner = inner is not None
        self._levels = levels
        link, others = communicator.link, _figures(inner, levels)
        world_size, staging = communicator.world_size, staging_of(device)
        self.stager = Stager(communicator.all_reduce, world_size, link.byte_s, staging, **others)

    def all_reduce(
        self, tensor: torch.Tensor, op: str, timeout: float, *, may_decline: bool = False
    ) -> Handle | None:
        """Start to reduce a tensor in place; None if the inner group is to reduce it."""
        call = partial(self.communicator.all_reduce, op=op, async_op=True, timeout=timeout)
        if tensor.layout is torch.sparse_coo:
            return self._sparse(tensor, [tensor], partial(call, result="sparse"))
        turn = self.stager.take_turn(tensor, op)
        if may_decline and self._has_inner and _is_for_inner(turn, timeout):
            return None
        levels = None if turn is None else self._levels

        def prepare(staging: Staging) -> Transfer:
            kind = self.stager.kind(staging, tensor, turn, timeout)
            if levels is None:
                return kind(staging, tensor)
            return LevelTransfer(staging, tensor, levels.host, kind, op == "avg")

        if levels is not None:
            call = partial(levels.peers.all_reduce, op=op, async_op=True, timeout=timeout)
        with deciding(turn):
            return self._submit(tensor, prepare, call, during=partial(deciding, turn))

    def broadcast(self, tensor: torch.Tensor, root: int, timeout: float) -> Handle | None:
        """Start to give each rank the tensor of rank `root`; a dense one as a sum with zeros.

        None if the inner group is to serve the call.
        """
        if tensor.layout is torch.sparse_coo:
            give = partial(self.communicator.broadcast, root=root, async_op=True, timeout=timeout)
            return self._sparse(tensor, [tensor], give)
        if self._has_inner:
            return None
        speaks = root == self.communicator.rank

        def prepare(staging: Staging) -> Transfer:
            return PackedTransfer(staging, tensor, words=True, speaks=speaks)

        add = partial(self.communicator.all_reduce, async_op=True, timeout=timeout)
        return self._submit(tensor, prepare, add)

    def reduce(self, tensor: torch.Tensor, op: str, root: int, timeout: float) -> Handle:
        """Start to reduce a sparse tensor at rank `root`; other ranks keep theirs unchanged."""
        call = partial(self.communicator.reduce, op=op, root=root, async_op=True, timeout=timeout)
        return self._sparse(tensor, [tensor], call)

    def all_gather(
        self, tensor: torch.Tensor, outputs: Sequence[torch.Tensor], timeout: float
    ) -> Handle:
        """Start to put the sparse tensors of all ranks into `outputs`, one for each rank."""
        require_outputs(tensor, outputs, self.communicator.world_size)
        call = partial(self.communicator.all_gather, async_op=True, timeout=timeout)
        return self._sparse(tensor, outputs, call)

    def choices(self) -> dict[str, dict[str, Any]]:
        """The latest choices, by dtype and number of elements."""
        return {
            kind: {
                "path": decision.path.value,
                **decision.sample._asdict(),
                "predicted_s": decision.predicted_s,
            }
            for kind, decision in self.stager.chooser.decisions().items()
        }

    def abort(self, message: str) -> None:
        """Fail collectives in flight, on all ranks."""
        self.communicator.abort(message)
        if self._levels is not None:
            self._levels.abort(message)

    def close(self) -> None:
        """Fail collectives in flight, and end the threads. Idempotent."""
        is_busy = self._queue.is_busy
        self.communicator.close()
        if self._levels is not None:
            self._levels.close(is_busy)
        self._queue.close()

    def _sparse(self, tensor: torch.Tensor, targets: Sequence[torch.Tensor], call: Call) -> Handle:
        def prepare(staging: Staging) -> Transfer:
            return SparseTransfer(staging, tensor, targets)

        return self._submit(tensor, prepare, call, targets)

    def _submit(self, *arguments: Any, **named: Any) -> Handle:
        handle = self._queue.submit(*arguments, **named)
        handle.watching = self.stager.watching
        return handle


def _is_for_inner(turn: Turn | None, timeout: float) -> bool:
    """Whether NCCL is to serve a call. The caller must know now: NCCL keeps the program's order.

    False if there is no decision because a rank has failed; the engine then gives the error.
    """
    if turn is None:
        return True
    if turn.samples or _failure(turn, timeout) is not None:
        return False
    return turn.decision.result().path is Path.INNER


def _failure(turn: Turn, timeout: float) -> BaseException | None:
    """Wait for the decision, and return its error, or None; raises Timeout after `timeout` s."""
    try:
        return turn.decision.exception(None if math.isinf(timeout) else timeout)
    except FutureTimeout:
        raise Timeout(
            f"the ranks have not chosen who serves this tensor after {timeout:g} s: find out which "
            "rank has not made the calls before this one"
        ) from None
