"""Quantised TopK SGD with error feedback, as a DDP communication hook.

Renggli et al., SparCML: High-performance sparse communication for machine learning, SC 2019. Of
every few hundred elements of a gradient only those of largest magnitude are sent, in a few bits
each; the rest is added to the next gradient.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from itertools import accumulate

import torch
from torch._C._distributed_c10d import GradBucket

from sparsewire.torch.hooks.bucket_gradients import BucketGradients
from sparsewire.torch.hooks.topk_state import TopKState


def topk_hook(state: TopKState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the largest elements of a bucket's gradients; for `model.register_comm_hook`.

    What a rank does not send, it adds to its next gradient of the same parameter. Sparse gradients
    are averaged in full. Raises TypeError for gradients other than float32, float16 and bfloat16,
    ValueError for those that are not on the CPU; the future raises the errors of the engine.
    """
    gradient = bucket.buffer()
    if state.begin(bucket):
        return state.transport.average(gradient)
    if not gradient.is_cpu:
        raise ValueError(f"topk_hook takes gradients on the CPU, not on {gradient.device}")
    return _Exchange(state, BucketGradients(bucket)).start()


class _Exchange:
    """One bucket of DDP on its way: the records of its parameters, one row for each rank."""

    def __init__(self, state: TopKState, gradients: BucketGradients) -> None:
        self._state = state
        self._gradients = gradients
        sizes = (state.format.bytes(part.numel()) for part in gradients.parts)
        *self._begins, self._bytes = accumulate(sizes, initial=0)

    def start(self) -> torch.futures.Future[torch.Tensor]:
        """Write this rank's row, send it, and average all rows once they are here."""
        row = torch.zeros(self._bytes, dtype=torch.uint8)
        gradients = self._gradients
        for parameter, part, begin in zip(
            gradients.parameters, gradients.parts, self._begins, strict=True
        ):
            residual = self._state.residuals.of(parameter).data_ptr()
            record = row.data_ptr() + begin
            self._state.format.compress(part.data_ptr(), residual, part.numel(), record)
        return self._state.transport.gather(row).then(self._finish)

    def _finish(self, rows: torch.Tensor) -> torch.Tensor:
        """Write the mean to where the gradient was."""
        for part, begin in zip(self._gradients.parts, self._begins, strict=True):
            first = rows.data_ptr() + begin
            self._state.format.mean(first, rows.stride(0), len(rows), part.numel(), part.data_ptr())
        return self._gradients.store()
