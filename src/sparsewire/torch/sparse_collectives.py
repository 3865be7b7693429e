"""Collectives other than all_reduce and broadcast whose sparse tensors go to the engine.

The inner backends refuse these, so that only the calls that torch.distributed makes are served.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import ReduceOptions

from sparsewire.communicator import Communicator
from sparsewire.torch import engine_path, sparse_part
from sparsewire.torch.engine_call import Part
from sparsewire.torch.forwarding import Forwarding
from sparsewire.torch.untraced import untraced

_NOT_SET = timedelta(microseconds=-1)


class SparseCollectives(Forwarding):
    """`allgather` and `reduce`: sparse tensors to the engine, all others to the inner backend."""

    _communicator: Communicator

    def _start(self, part: Part) -> dist.Work:
        """The work of a part that has just been started."""
        raise NotImplementedError

    def _seconds(self, timeout: timedelta) -> float:
        """The limit of a call; that of the group where the call's is negative."""
        raise NotImplementedError

    @untraced
    def allgather(self, *args: Any, **kwargs: Any) -> Any:
        """Give each rank the tensors of all; as `dist.all_gather` calls it where sparse."""
        if len(args) < 2 or not _is_one_sparse(args[1]):
            return super().allgather(*args, **kwargs)
        (outputs,), (tensor,), *options = args
        group: Any = self._serving()
        seconds = group._seconds(options[0].timeout if options else _NOT_SET)
        part = sparse_part.all_gather(group._communicator, outputs, tensor, seconds)
        return group._start(part)

    @untraced
    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        """Reduce a tensor to one rank; as `dist.reduce` calls it where sparse."""
        op = _operation(*args)
        if op is None:
            return super().reduce(*args, **kwargs)
        (tensor,), options = args
        group: Any = self._serving()
        seconds = group._seconds(options.timeout)
        part = sparse_part.reduce(group._communicator, tensor, op, options.rootRank, seconds)
        return group._start(part)


def _is_one_sparse(tensors: Any) -> bool:
    one = isinstance(tensors, list | tuple) and len(tensors) == 1
    return one and engine_path.is_sparse(tensors[0])


def _operation(tensors: Any = None, options: Any = None, *others: Any) -> str | None:
    """The engine's name of the operation, or None where the call is not for the engine."""
    if not (_is_one_sparse(tensors) and isinstance(options, ReduceOptions)):
        return None
    return engine_path.operation(tensors, options.reduceOp.op)  # type: ignore[attr-defined]
