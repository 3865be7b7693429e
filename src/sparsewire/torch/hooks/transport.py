"""How hooks send: means of tensors, and rows or messages that every rank gives to every other.

On a group of sparsewire the engine sends both; on any other group, the group's own collectives do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from sparsewire.compress.message import framed, unframed
from sparsewire.torch.backend import callee_of

_WORD_BYTES = 4
_LENGTH = np.dtype("<i8")
_CPU = torch.device("cpu")

T = TypeVar("T")
U = TypeVar("U")


class Gathering(Generic[T]):
    """Data of all ranks in flight; `read` returns the data once `work` has ended."""

    def __init__(self, work: dist.Work, read: Callable[[], T]) -> None:
        self.work = work
        self.read = read

    def wait(self) -> T:
        """Block until all data is here, and return it; raises the error of the work."""
        self.work.wait()
        return self.read()

    def then(self, callback: Callable[[T], U]) -> torch.futures.Future[U]:
        """A future of `callback(data)`."""

        def arrived(done: torch.futures.Future[Any]) -> U:
            done.value()  # Raises the error of the work.
            return callback(self.read())

        future: Any = self.work.get_future()
        return future.then(arrived)  # type: ignore[no-any-return]


class Transport(ABC):
    """The calls that hooks make on a process group. All calls are collective."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank: int = group.rank()
        self.size: int = group.size()

    @abstractmethod
    def average(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """The mean of a tensor, dense or sparse, over all ranks; a dense one is made in place."""

    @abstractmethod
    def gather_rows(self, own: torch.Tensor) -> Gathering[torch.Tensor]:
        """Give all ranks `own`, uint8, shape (bytes,), of the same length on all ranks.

        The result has shape (ranks, bytes). Both tensors are on the CPU.
        """

    def gather(self, message: bytes) -> Gathering[list[bytes]]:
        """Give all ranks `message`, of any length on each rank; the result is in rank order.

        This version first sends the lengths, as rows, and blocks until all lengths are known.
        """
        # A callback could not send the rows: the order of callbacks depends on the group.
        length = np.array([len(message)], _LENGTH).view(np.uint8)
        rows = self.gather_rows(torch.from_numpy(length)).wait()
        lengths = rows.contiguous().numpy().view(_LENGTH)[:, 0].tolist()
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(message)] = np.frombuffer(message, np.uint8)
        gathering = self.gather_rows(torch.from_numpy(padded))
        return Gathering(gathering.work, lambda: _split(gathering.read(), lengths))


def transport_of(process_group: dist.ProcessGroup | None) -> Transport:
    """The transport among the ranks of a group; None is the default group."""
    group: Any = process_group if process_group is not None else dist.group.WORLD
    callee = callee_of(group)
    return PlainTransport(group) if callee is None else EngineTransport(callee)


class EngineTransport(Transport):
    """Sends through sparsewire's engine, which leaves out zeros."""

    def average(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        return _result(self._group.allreduce([tensor], op=dist.ReduceOp.AVG))

    def gather_rows(self, own: torch.Tensor) -> Gathering[torch.Tensor]:
        # The other rows are zeros, which cost nothing to send and do not change a sum.
        words = -(-own.numel() // _WORD_BYTES)
        table = torch.zeros(self.size, words, dtype=torch.int32, device="cpu")
        rows = table.view(torch.uint8)[:, : own.numel()]
        rows[self.rank] = own
        return Gathering(self._group.allreduce([table]), lambda: rows)

    def gather(self, message: bytes) -> Gathering[list[bytes]]:
        if self._group.has_aggregators:
            # Ranks are not connected with each other, and owners only add.
            return super().gather(message)
        # The rows of a sparse tensor, whose ranks agree on the lengths.
        rows = framed(message)
        tensor = torch.sparse_coo_tensor(
            torch.from_numpy(rows.indices)[None],
            torch.from_numpy(rows.values),
            rows.shape,
            device="cpu",
            is_coalesced=True,
            check_invariants=False,
        )
        received = [torch.empty_like(tensor) for _ in range(self.size)]
        work = self._group.allgather([received], [tensor])
        return Gathering(work, lambda: [_message(each) for each in received])


class PlainTransport(Transport):
    """Sends through the collectives that every backend has: gloo's on the CPU, NCCL's on CUDA."""

    def __init__(self, group: Any) -> None:
        super().__init__(group)
        # The CPU if the group can send from there.
        self._device = torch.device("cpu" if _CPU in group._device_types else "cuda")

    def average(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        # Not every backend has an average of its own.
        share = tensor.div_(self.size)
        work = dist.all_reduce(share, group=self._group, async_op=True)
        assert work is not None, "the caller is a rank of the group"
        return _result(work)

    def gather_rows(self, own: torch.Tensor) -> Gathering[torch.Tensor]:
        source = own.to(self._device)
        rows = torch.empty(self.size, own.numel(), dtype=torch.uint8, device=self._device)
        work = dist.all_gather(list(rows), source, group=self._group, async_op=True)
        assert work is not None, "the caller is a rank of the group"
        return Gathering(work, rows.cpu)


def _result(work: dist.Work) -> torch.futures.Future[torch.Tensor]:
    future: Any = work.get_future()
    return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]


def _message(rows: torch.Tensor) -> bytes:
    return unframed(rows.indices()[0].numpy(), rows.values().numpy())


def _split(rows: torch.Tensor, lengths: list[int]) -> list[bytes]:
    return [row[:length].tobytes() for row, length in zip(rows.numpy(), lengths, strict=True)]
