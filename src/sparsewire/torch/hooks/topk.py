"""Quantised TopK SGD with error feedback, as a DDP communication hook.

Renggli et al., SparCML: High-performance sparse communication for machine learning, SC 2019. Of
every few hundred elements of a gradient only those of largest magnitude are sent, in a few bits
each; the rest is added to the next gradient.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from collections.abc import Iterator
from itertools import accumulate

import torch
from torch._C._distributed_c10d import GradBucket

from sparsewire.torch.hooks.bucket_gradients import BucketGradients, add_lost, is_zero
from sparsewire.torch.hooks.topk_state import TopKState


def topk_hook(state: TopKState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the largest elements of a bucket's gradients; for `model.register_comm_hook`.

    What a rank does not send, and what rounding to half precision takes from the mean, it adds to
    its next gradient of the same parameter. A parameter whose gradient is zero on all ranks gets
    zeros, and what is owed of it stays. Sparse gradients are averaged in full.

    Raises TypeError for gradients other than float32, float16 and bfloat16, ValueError for those
    that are not on the CPU; the future raises the errors of the engine.
    """
    gradient = bucket.buffer()
    if state.begin(bucket):
        return state.transport.average(gradient)
    if not gradient.is_cpu:
        raise ValueError(f"topk_hook takes gradients on the CPU, not on {gradient.device}")
    return _Exchange(state, BucketGradients(bucket)).start()


class _Exchange:
    """One bucket of DDP on its way: the records of its parameters, one row for each rank.

    Behind the records is a byte for each parameter: 1 where its gradient is not zero. Where that is
    so on no rank, the rank owes again what it has sent: DDP throws away what comes of parameters
    that no rank has used.
    """

    def __init__(self, state: TopKState, gradients: BucketGradients) -> None:
        self._state = state
        self._gradients = gradients
        sizes = (state.format.bytes(part.numel()) for part in gradients.parts)
        *self._begins, self._flags = accumulate(sizes, initial=0)
        self._row = torch.zeros(self._flags + len(gradients.parts), dtype=torch.uint8)

    def start(self) -> torch.futures.Future[torch.Tensor]:
        """Write this rank's row, send it, and average all rows once they are here."""
        for index, (residual, part) in enumerate(self._vectors()):
            self._row[self._flags + index] = not is_zero(part)
            record = self._row.data_ptr() + self._begins[index]
            self._state.format.compress(part.data_ptr(), residual.data_ptr(), part.numel(), record)
        return self._state.transport.gather(self._row).then(self._finish)

    def _finish(self, rows: torch.Tensor) -> torch.Tensor:
        """Write the mean to where the gradient was."""
        is_used = rows[:, self._flags :].any(dim=0)
        for index, (residual, part) in enumerate(self._vectors()):
            if is_used[index]:
                self._average(rows, index, part)
                add_lost(residual, part, self._gradients.dtype)
            else:
                self._average(self._row[None], index, part)
                residual += part
                part.zero_()
        return self._gradients.store()

    def _average(self, rows: torch.Tensor, index: int, part: torch.Tensor) -> None:
        """Write the mean of what the rows say of a parameter to `part`."""
        first = rows.data_ptr() + self._begins[index]
        self._state.format.mean(first, rows.stride(0), len(rows), part.numel(), part.data_ptr())

    def _vectors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What is owed, and the gradient, of each parameter."""
        for parameter, part in zip(self._gradients.parameters, self._gradients.parts, strict=True):
            yield self._state.residuals.of(parameter), part
