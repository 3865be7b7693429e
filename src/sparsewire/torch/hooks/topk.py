"""Quantised TopK SGD with error feedback, as a DDP communication hook.

Renggli et al., SparCML: High-performance sparse communication for machine learning, SC 2019. Of
every few hundred elements of a gradient only those of largest magnitude are sent, in a few bits
each; the rest is added to the next gradient.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from sparsewire.torch.hooks.topk_state import TopKState

_DTYPES = {torch.float32, torch.float16, torch.bfloat16}
_WORD_BYTES = 4
_FLOAT_BYTES = 4


def topk_hook(state: TopKState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the largest elements of a bucket's gradients; for `model.register_comm_hook`.

    What a rank does not send, it adds to its next gradient of the same parameter. Sparse gradients
    are averaged in full. Raises TypeError for gradients other than float32, float16 and bfloat16,
    ValueError for those that are not on the CPU; the future raises the errors of the engine.
    """
    gradient = bucket.buffer()
    is_warming_up = state.step < state.warmup_steps
    state.step += bucket.is_last()
    if is_warming_up or gradient.layout is torch.sparse_coo:
        return _average(state, gradient)
    _check(gradient)
    return _Exchange(state, bucket).start()


def _average(state: TopKState, gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    future: Any = state.group.allreduce([gradient], op=dist.ReduceOp.AVG).get_future()
    return future.then(lambda done: done.value()[0])  # type: ignore[no-any-return]


def _check(gradient: torch.Tensor) -> None:
    if gradient.dtype not in _DTYPES:
        raise TypeError(
            f"topk_hook takes gradients of float32, float16 and bfloat16, not {gradient.dtype}: "
            "convert the model"
        )
    if not gradient.is_cpu:
        raise ValueError(f"topk_hook takes gradients on the CPU, not on {gradient.device}")


class _Exchange:
    """One bucket of DDP on its way: the records of its parameters, one row for each rank."""

    def __init__(self, state: TopKState, bucket: GradBucket) -> None:
        self._state = state
        self._gradient: torch.Tensor = bucket.buffer()
        self._flat = self._gradient.to(torch.float32)
        self._parameters = bucket.parameters()
        self._sizes = [parameter.numel() for parameter in self._parameters]
        *self._begins, total = accumulate(map(state.format.bytes, self._sizes), initial=0)
        words = -(-total // _WORD_BYTES)
        self._records = torch.zeros(state.group.size(), words, dtype=torch.int32)

    def start(self) -> torch.futures.Future[torch.Tensor]:
        """Write this rank's row, send it, and average all rows once they are here."""
        own = self._records[self._state.group.rank()].data_ptr()
        gradient = self._flat.data_ptr()
        for parameter, size, begin in zip(self._parameters, self._sizes, self._begins, strict=True):
            residual = self._state.residuals.of(parameter).data_ptr()
            self._state.format.compress(gradient, residual, size, own + begin)
            gradient += size * _FLOAT_BYTES
        # The other rows are zeros, which cost nothing to send and leave a sum as it is.
        future: Any = self._state.group.allreduce([self._records]).get_future()
        return future.then(self._finish)  # type: ignore[no-any-return]

    def _finish(self, gathered: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        """Write the mean to where the gradient was; raises why there is none."""
        gathered.value()
        ranks, words = self._records.shape
        mean = self._flat.data_ptr()
        for size, begin in zip(self._sizes, self._begins, strict=True):
            self._state.format.mean(
                self._records.data_ptr() + begin, words * _WORD_BYTES, ranks, size, mean
            )
            mean += size * _FLOAT_BYTES
        if self._flat is not self._gradient:
            self._gradient.copy_(self._flat)
        return self._gradient
