"""Error feedback for any compressor, as a DDP communication hook.

Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Stich, Cordonnier, Jaggi,
Sparsified SGD with memory, NeurIPS 2018. What compression loses of a gradient is added to the next.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket

from sparsewire.compress import Compressor, as_contraction
from sparsewire.torch.hooks.bucket_gradients import add_lost
from sparsewire.torch.hooks.compressed_state import CompressedState
from sparsewire.torch.hooks.gradient_mean import GradientMean
from sparsewire.torch.hooks.parameter_map import MakeCompressor, ParameterVectors
from sparsewire.torch.hooks.saved import Saved, residuals_of


class ErrorFeedbackState(CompressedState):
    """What `error_feedback_hook` keeps from step to step on one rank.

    `compressor` names an operator as `sparsewire.compress.parse` takes it, or makes one for a
    number of elements. Error feedback needs contractions: unbiased operators, and unbiased parts of
    compositions and mixtures, are scaled down by omega + 1, and what is no contraction even then is
    refused, but for plain thresholds (`sparsewire.compress.as_contraction`). Parameters of fewer
    than `min_elements` are sent as they are, in the same message. The first `warmup_steps` steps
    send everything. Without `overlap`, all buckets of a step go out in one message behind the last
    one; the result is the same. `seed` is that of all random choices, which differ between ranks.

    Where the number of ranks changes, rank r takes over what the old ranks r, r + n, r + 2n, ... of
    n owe, scaled so that the mean of all that is owed stays the same.

    `process_group` is that of the model, None for the default one; all ranks need the same
    settings. Raises ValueError for settings out of range, CompressError, which is one, for unknown
    operators and those that are no contractions.
    """

    owes = True

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        compressor: str | MakeCompressor = "block-top-k:0.01",
        warmup_steps: int = 0,
        overlap: bool = True,
        min_elements: int = 4096,
        seed: int = 0,
    ) -> None:
        super().__init__(process_group, compressor, warmup_steps, overlap, min_elements, seed)
        self.residuals = ParameterVectors()

    def vectors(self) -> Mapping[str, ParameterVectors]:
        return {"residuals": self.residuals}

    def dealt(self, states: Sequence[Saved]) -> Mapping[str, Mapping[str, Tensor]]:
        return {"residuals": residuals_of(states, self.transport.rank, self.transport.size)}

    def turn(self, parameter: Tensor, gradient: Tensor) -> None:
        gradient += self.residuals.of(parameter)

    def code(self, operator: Compressor, parameter: Tensor, gradient: Tensor) -> Any:
        owed = self.residuals.of(parameter)
        return operator.code_of_sum(gradient.numpy(), owed.numpy(), self.draws_of(parameter))

    def estimate(self, parameter: Tensor, mean: GradientMean, gradient: Tensor) -> None:
        mean.write(gradient)

    def learn(
        self, parameter: Tensor, mean: GradientMean, gradient: Tensor, dtype: torch.dtype
    ) -> None:
        residual = self.residuals.of(parameter)
        mean.feed_back(gradient, residual)
        # If every rank owes what rounding takes from the mean, so does their mean.
        add_lost(residual, gradient, dtype)

    def adapt(self, operator: Compressor) -> Compressor:
        return as_contraction(operator)


def error_feedback_hook(
    state: ErrorFeedbackState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average what a compressor keeps of a bucket's gradients; for `model.register_comm_hook`.

    Each rank sends C(p), where p is its gradient and what it still owes, and owes p - C(p) from
    then on, in float32: exact for operators that keep elements as they are. What rounding the mean
    to a gradient of half precision takes is owed as well. A parameter whose gradient is zero on all
    ranks gets zeros, and what is owed of it stays: DDP would throw away what came of it if no rank
    has used it. A gradient that an operator cannot express, as it is too large, is sent as it is.
    Sparse gradients are averaged in full. Where the mean is not finite, nothing is remembered. All
    ranks get the same bits.

    Raises TypeError for gradients other than float32, float16 and bfloat16, CompressError where the
    operator does not fit a parameter, and the errors of the group; so does the future.
    """
    return state.average(bucket)
