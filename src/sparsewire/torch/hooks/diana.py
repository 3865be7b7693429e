"""DIANA, which compresses differences of gradients, as a DDP communication hook.

Mishchenko, Gorbunov, Takac, Richtarik, Distributed learning with compressed gradient differences,
2019. If ranks have different data, DIANA reaches the optimum, which quantised gradients miss.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket

from sparsewire.compress import CompressError, Compressor
from sparsewire.torch.hooks.compressed_state import CompressedState
from sparsewire.torch.hooks.gradient_mean import GradientMean
from sparsewire.torch.hooks.parameter_map import MakeCompressor, ParameterVectors
from sparsewire.torch.hooks.saved import Saved, own_state


class DianaState(CompressedState):
    """The state of `diana_hook` on one rank, kept from step to step.

    `shifts` are this rank's h_i, its gradients as it has told them so far; `mean_shifts` are h, the
    mean of all ranks' shifts, equal on all ranks. Shifts move by `alpha`, 0 to 1, times the sent
    vector; None is 1/(omega + 1) of each parameter's operator, the largest that the theory allows.

    If the number of ranks changes, it is unknown which rank has which data. So the shifts of all
    ranks then start from their mean, which stays the same.

    `compressor`, which must be unbiased, and all other settings are those of `ErrorFeedbackState`.
    Raises ValueError for settings out of range, and its subclass CompressError for unknown and
    biased operators.
    """

    owes = False

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        compressor: str | MakeCompressor = "qsgd:7",
        alpha: float | None = None,
        warmup_steps: int = 0,
        overlap: bool = True,
        min_elements: int = 4096,
        seed: int = 0,
    ) -> None:
        if alpha is not None and not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be 0 to 1, not {alpha}")
        super().__init__(process_group, compressor, warmup_steps, overlap, min_elements, seed)
        self.alpha = alpha
        self.shifts = ParameterVectors()
        self.mean_shifts = ParameterVectors()

    def vectors(self) -> Mapping[str, ParameterVectors]:
        return {"shifts": self.shifts, "mean_shifts": self.mean_shifts}

    def dealt(self, states: Sequence[Saved]) -> Mapping[str, Mapping[str, Tensor]]:
        own = own_state(states, self.transport.rank, self.transport.size)
        mean = states[0]["mean_shifts"]
        return {"shifts": own["shifts"] if own else mean, "mean_shifts": mean}

    def turn(self, parameter: Tensor, gradient: Tensor) -> None:
        gradient -= self.shifts.of(parameter)

    def code(self, operator: Compressor, parameter: Tensor, gradient: Tensor) -> Any:
        shift = self.shifts.of(parameter)
        draws = self.draws_of(parameter)
        return operator.code_of_difference(gradient.numpy(), shift.numpy(), draws)

    def estimate(self, parameter: Tensor, mean: GradientMean, gradient: Tensor) -> None:
        mean.add(self.mean_shifts.of(parameter), gradient)

    def learn(
        self, parameter: Tensor, mean: GradientMean, gradient: Tensor, dtype: torch.dtype
    ) -> None:
        omega = self.operators.of(parameter).omega
        rate = 1 / (omega + 1) if self.alpha is None else self.alpha
        mean.follow(self.shifts.of(parameter), self.mean_shifts.of(parameter), gradient, rate)

    def adapt(self, operator: Compressor) -> Compressor:
        if operator.is_biased:
            raise CompressError(
                "DIANA takes unbiased operators only: use error_feedback_hook for this one"
            )
        return operator


def diana_hook(state: DianaState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients by compressed differences; for `model.register_comm_hook`.

    Each rank sends Q(g_i - h_i), and the gradient becomes h + mean Q(g_i - h_i), with the same bits
    on all ranks. Then h_i moves by alpha Q(g_i - h_i), and h by the mean of these moves. Sparse
    gradients are averaged in full. If a gradient is not finite, the mean is not finite either, and
    shifts do not move.

    Raises TypeError for gradients other than float32, float16 and bfloat16, CompressError if the
    operator does not fit a parameter, and the errors of the group; the future raises them, too.
    """
    return state.average(bucket)
