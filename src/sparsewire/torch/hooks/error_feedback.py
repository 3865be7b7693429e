"""Error feedback for any compressor, as a DDP communication hook.

Seide et al., 1-bit stochastic gradient descent, Interspeech 2014; Stich, Cordonnier, Jaggi,
Sparsified SGD with memory, NeurIPS 2018. The loss of compression is added to the next gradient.
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
    """The state of `error_feedback_hook` on one rank, kept from step to step.

    `compressor` names an operator as `sparsewire.compress.parse` takes it, or is a function that
    makes one for a number of elements. Error feedback needs contractions: unbiased operators, and
    unbiased parts of compositions and mixtures, are divided by omega + 1. Operators that are no
    contractions even then are refused, except plain thresholds (see
    `sparsewire.compress.as_contraction`). Parameters of fewer than `min_elements` elements are sent
    as they are, in the same message. The first `warmup_steps` steps send everything. Without
    `overlap`, all buckets of a step go out in one message after the last bucket; the result is the
    same. `seed` is the seed of all random choices, which differ between ranks.

    If the number of ranks changes to n, rank r takes over the residuals of the old ranks r, r + n,
    r + 2n, ..., scaled so that the mean of all residuals stays the same.

    `process_group` is the model's; None is the default group. All ranks need the same settings.
    Raises ValueError for settings out of range, and its subclass CompressError for unknown
    operators and operators that are no contractions.
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
        # If every rank adds the loss of rounding the mean, so does the mean of all residuals.
        add_lost(residual, gradient, dtype)

    def adapt(self, operator: Compressor) -> Compressor:
        return as_contraction(operator)


def error_feedback_hook(
    state: ErrorFeedbackState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's compressed gradients, with residuals; for `model.register_comm_hook`.

    Each rank sends C(p), where p is its gradient plus its residual, and the residual becomes
    p - C(p), in float32: exact for operators that keep elements as they are. The loss of rounding
    the mean to half precision is added to the residual, too. A parameter whose gradient is zero on
    all ranks gets zeros, and its residual stays: if no rank has used the parameter, DDP would drop
    any mean. A gradient that is too large for an operator is sent as it is. Sparse gradients are
    averaged in full. If the mean is not finite, residuals stay unchanged. All ranks get the same
    bits.

    Raises TypeError for gradients other than float32, float16 and bfloat16, CompressError if the
    operator does not fit a parameter, and the errors of the group; the future raises them, too.
    """
    return state.average(bucket)
