"""Sends messages made of tensors on a device to all ranks, in threads that may wait for the device.

Messages have a communicator of their own, because these threads send later than the program calls.
So the order of messages among the program's collectives differs from rank to rank.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import Store

import sparsewire
from sparsewire.collectives.staged import refuse_capture
from sparsewire.compress.message import framed, unframed
from sparsewire.errors import Error
from sparsewire.lifetime import PROCESS_GROUP, Inherited, never_free
from sparsewire.torch.device.device_queue import DeviceQueue, Handle, Prepare


class MessageChannel:
    """One rank's end of the channel. It meets the other ranks at the first message."""

    def __init__(self, store: Store, rank: int, size: int, timeout: Callable[[], float]) -> None:
        """`timeout` returns the limit of a collective that begins now, in seconds."""
        self._store = store
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._meeting = threading.Lock()
        self._is_closed = False
        self._communicator: sparsewire.Communicator | None = None
        self._queue: DeviceQueue | None = None
        self._inherited: Inherited | None = None

    def submit(self, tensor: torch.Tensor, prepare: Prepare) -> Handle:
        """Gather the messages of transfers; each transfer receives the messages of all ranks.

        The transfer reads and writes `tensor` on its device. All ranks call this. Raises
        `sparsewire.Error` if ranks do not come to the first call, the channel is closed, or a graph
        is captured.
        """
        refuse_capture(tensor.device)
        communicator, queue = self._connected()
        return queue.submit(tensor, prepare, partial(_gather, communicator, self._timeout()))

    def abort(self, message: str) -> None:
        """Fail messages in flight, on all ranks."""
        if self._communicator is not None:
            self._communicator.abort(message)

    def close(self) -> None:
        """Fail messages in flight, and end the threads. Idempotent."""
        self._is_closed = True
        if self._communicator is not None:
            self._communicator.close()
        if self._queue is not None:
            self._queue.close()

    def disown(self) -> None:
        """In a forked child: leave all to the parent."""
        self._meeting = threading.Lock()
        if self._queue is not None:
            never_free(self._queue)
        self._communicator, self._queue = None, None
        self._inherited = Inherited(PROCESS_GROUP)

    def _connected(self) -> tuple[sparsewire.Communicator, DeviceQueue]:
        if self._inherited is not None:
            self._inherited.refuse()
        with self._meeting:
            self._refuse_closed()
            if self._communicator is None or self._queue is None:
                self._communicator = self._meet()
                self._queue = DeviceQueue(self._rank, self._communicator.abort)
                self._refuse_closed()
            return self._communicator, self._queue

    def _refuse_closed(self) -> None:
        if self._is_closed:
            self.close()  # An earlier `close` may have missed what was made in the meantime.
            raise Error("the process group was destroyed: make a new one")

    def _meet(self) -> sparsewire.Communicator:
        timeout = self._timeout()
        return sparsewire.init(self._store, rank=self._rank, world_size=self._size, timeout=timeout)


def _gather(communicator: sparsewire.Communicator, timeout: float, message: Any, **_: Any) -> Any:
    if communicator.has_aggregators:
        # Ranks are not connected with each other, and owners only add.
        return _Rows(communicator, message, timeout)
    return _Messages(communicator.all_gather(framed(message), async_op=True, timeout=timeout))


class _Messages:
    """Messages in flight."""

    def __init__(self, work: sparsewire.Work) -> None:
        self._work = work

    def wait(self) -> list[bytes]:
        """The messages of all ranks, in rank order; raises the error of the collective."""
        return [unframed(each.indices, each.values) for each in self._work.wait()]


class _Rows:
    """Messages in flight as rows of a sum, where each rank has zeros in the rows of others."""

    def __init__(
        self, communicator: sparsewire.Communicator, message: bytes, timeout: float
    ) -> None:
        rank, ranks = communicator.rank, communicator.world_size
        self._lengths = np.zeros(ranks, np.int64)
        self._lengths[rank] = len(message)
        communicator.all_reduce(self._lengths, timeout=timeout)
        self._rows = np.zeros((ranks, -(-int(self._lengths.max()) // 4)), np.int32)
        self._rows.view(np.uint8)[rank, : len(message)] = np.frombuffer(message, np.uint8)
        self._work = communicator.all_reduce(self._rows, async_op=True, timeout=timeout)

    def wait(self) -> list[bytes]:
        self._work.wait()
        rows: Sequence[Any] = list(self._rows.view(np.uint8))
        return [
            row[:length].tobytes() for row, length in zip(rows, self._lengths.tolist(), strict=True)
        ]
