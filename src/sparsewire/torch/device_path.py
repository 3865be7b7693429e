"""How a group serves tensors on a device: by the engine, packed or whole, or by its inner NCCL.

Which of them is decided alike on every rank.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import sparsewire
from sparsewire.device.accelerator import ACCELERATORS
from sparsewire.device.choice import Turn
from sparsewire.device.path_cost import Path
from sparsewire.device.staging import Staging, staging_of
from sparsewire.device.transfer import PackedTransfer, SparseTransfer, Transfer
from sparsewire.lifetime import Inherited, never_free
from sparsewire.meeting.sockets import host_identity
from sparsewire.staged import Stager
from sparsewire.torch.device_queue import Call, DeviceQueue, Handle
from sparsewire.torch.engine_path import require_outputs
from sparsewire.torch.inner_speed import InnerSpeed

MeasureInner = Callable[[torch.device], InnerSpeed]


class DevicePaths:
    """The one path of a group, made with the first tensor on a device; None if `make` says so."""

    def __init__(self, make: Callable[[torch.device], DevicePath | None]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: list[DevicePath | None] = []

    def of(self, device: torch.device) -> DevicePath | None:
        """The path, made by all ranks together."""
        with self._making:
            if not self._made:
                self._made.append(self._make(device))
            return self._made[0]

    @property
    def made(self) -> DevicePath | None:
        """The path, where it was made."""
        return self._made[0] if self._made else None

    def close(self) -> None:
        """Fail what is in flight. Idempotent."""
        for path in filter(None, self._made):
            path.close()

    def abort(self, message: str) -> None:
        """Fail what is in flight, on all ranks."""
        for path in filter(None, self._made):
            path.communicator.abort(message)

    def disown(self) -> None:
        """In a forked child: leave the path to the parent."""
        self._making = threading.Lock()
        for path in filter(None, self._made):
            never_free(path)
        self._made = []
        inherited = Inherited("process group")
        self._make = lambda _: inherited.refuse()


class DevicePath:
    """One rank's end, made by all ranks together with their first tensor on a device.

    `measure_inner`, a collective call, tells what the inner NCCL group takes; without it the engine
    serves all that it can.
    """

    def __init__(
        self,
        communicator: sparsewire.Communicator,
        device: torch.device,
        measure_inner: MeasureInner | None,
    ) -> None:
        self.communicator = communicator
        self._queue = DeviceQueue(communicator)
        self._has_inner = measure_inner is not None
        inner = measure_inner(device) if measure_inner is not None else InnerSpeed()
        self.stager = Stager(
            communicator.all_reduce,
            communicator.world_size,
            communicator.link.byte_s,
            staging_of(device),
            (inner.byte_s, inner.latency_s),
        )

    def all_reduce(
        self, tensor: torch.Tensor, op: str, timeout: float, *, may_decline: bool = False
    ) -> Handle | None:
        """Start to reduce a tensor in place; None where the inner group is to do it."""
        call = partial(self.communicator.all_reduce, op=op, async_op=True, timeout=timeout)
        if tensor.layout is torch.sparse_coo:
            return self._sparse(tensor, [tensor], partial(call, result="sparse"))
        turn = self.stager.take_turn(tensor, op)
        if may_decline and self._has_inner and _is_for_inner(turn):
            return None

        def prepare(staging: Staging) -> Transfer:
            return self.stager.transfer(staging, tensor, turn, timeout)

        return self._queue.submit(tensor, prepare, call)

    def broadcast(self, tensor: torch.Tensor, root: int, timeout: float) -> Handle | None:
        """Start to give each rank the tensor of rank `root`, dense as a sum with zeros.

        None where the inner group is to do it.
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
        return self._queue.submit(tensor, prepare, add)

    def reduce(self, tensor: torch.Tensor, op: str, root: int, timeout: float) -> Handle:
        """Start to reduce a sparse tensor at rank `root`; the others keep theirs as they are."""
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
        """The latest, by dtype and number of elements."""
        return {
            kind: {
                "path": decision.path.value,
                **decision.sample._asdict(),
                "predicted_s": decision.predicted_s,
            }
            for kind, decision in self.stager.chooser.decisions().items()
        }

    def close(self) -> None:
        """Fail what is in flight, and end the threads. Idempotent."""
        self.communicator.close()
        self._queue.close()

    def _sparse(self, tensor: torch.Tensor, targets: Sequence[torch.Tensor], call: Call) -> Handle:
        def prepare(staging: Staging) -> Transfer:
            return SparseTransfer(staging, tensor, targets)

        return self._queue.submit(tensor, prepare, call)


def _is_for_inner(turn: Turn | None) -> bool:
    """Whether NCCL is to serve a call: known at once, for its calls are in the program's order."""
    if turn is None:
        return True
    return not turn.samples and turn.decision.result().path is Path.INNER


def share_devices(communicator: sparsewire.Communicator, device: torch.device) -> bool:
    """Whether two ranks have one device, which NCCL refuses; collective."""
    name = ACCELERATORS[device.type].identity(device)
    digest = hashlib.sha256(f"{host_identity()} {name}".encode()).digest()
    table = np.zeros(communicator.world_size, np.int64)
    table[communicator.rank] = int.from_bytes(digest[:7], "little")
    return len(set(communicator.all_reduce(table).tolist())) < len(table)
