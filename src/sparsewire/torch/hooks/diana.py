"""DIANA, which compresses differences of gradients, as a DDP communication hook.

Mishchenko, Gorbunov, Takac, Richtarik, Distributed learning with compressed gradient differences,
2019. Where ranks have different data, it reaches the optimum that quantised gradients miss.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from sparsewire.compress import CompressError, Compressor
from sparsewire.torch.hooks.averaging import average_compressed
from sparsewire.torch.hooks.compressed_state import CompressedState, SavedDraws
from sparsewire.torch.hooks.means import Mean
from sparsewire.torch.hooks.operators import MakeCompressor
from sparsewire.torch.hooks.parameter_map import ParameterVectors
from sparsewire.torch.hooks.saved import own_state, states_of
from sparsewire.torch.hooks.sent import Sent


class SavedDiana(SavedDraws):
    """The state of one rank, as it is saved."""

    shifts: dict[str, torch.Tensor]
    mean_shifts: dict[str, torch.Tensor]


class DianaState(CompressedState):
    """What `diana_hook` keeps from step to step on one rank.

    `shifts` are this rank's h_i, what it has told of its gradients so far; `mean_shifts` are h, the
    mean of all ranks' shifts, the same everywhere. Shifts move by `alpha`, 0 to 1, times what is
    sent; None is 1/(omega + 1) of each parameter's operator, the largest that the theory allows.

    `compressor`, which must be unbiased, and all other settings are those of `ErrorFeedbackState`.
    Raises ValueError for settings out of range, CompressError, which is one, for unknown and biased
    operators.
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

    def state_dict(self) -> SavedDiana:
        """The state of this rank, for `torch.save`; every rank has one of its own.

        Raises RuntimeError before `register`.
        """
        return {
            **self._saved_draws(),
            "shifts": self.shifts.named(self.parameters),
            "mean_shifts": self.mean_shifts.named(self.parameters),
        }

    def load_state_dict(self, saved: SavedDiana | Sequence[SavedDiana]) -> None:
        """Go on from what this rank saved, or from a list of what all ranks of a job saved.

        With a list, the number of ranks may differ. Who has which data is then unknown, so that the
        shifts of all ranks start from their mean, which stays the same; random choices begin anew.

        Raises RuntimeError before `register`; ValueError where a single state is of another rank or
        number of ranks, a list lacks a rank, or parameters differ.
        """
        states = states_of(saved, self.transport.rank, self.transport.size)
        own = own_state(states, self.transport.rank, self.transport.size)
        mean = states[0]["mean_shifts"]
        self.shifts.replace(own["shifts"] if own else mean, self.parameters)
        self.mean_shifts.replace(mean, self.parameters)
        self._restore_draws(states)

    def code(self, operator: Compressor, parameter: torch.Tensor, gradient: torch.Tensor) -> Any:
        gradient -= self.shifts.of(parameter)
        return operator.code(gradient, self.draws_of(parameter))

    def estimate(self, parameter: torch.Tensor, mean: Mean, gradient: torch.Tensor) -> None:
        mean.add(self.mean_shifts.of(parameter), gradient)

    def learn(
        self,
        parameter: torch.Tensor,
        mean: Mean,
        own: Sent,
        gradient: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        rate = self._rate(parameter)
        own.add_to(self.shifts.of(parameter), rate)
        self.estimate(parameter, mean, gradient)
        mean.move(self.mean_shifts.of(parameter), rate)

    def _rate(self, parameter: torch.Tensor) -> float:
        """How much of what is sent the shifts of a parameter take in."""
        if self.alpha is not None:
            return self.alpha
        return 1 / (self.operators.of(parameter).omega + 1)

    def adapt(self, operator: Compressor) -> Compressor:
        if operator.is_biased:
            raise CompressError(
                "DIANA takes unbiased operators only: use error_feedback_hook for this one"
            )
        return operator


def diana_hook(state: DianaState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients by compressed differences; for `model.register_comm_hook`.

    Each rank sends Q(g_i - h_i), and the gradient is h + mean Q(g_i - h_i) on all ranks, to the
    same bits. Then h_i moves by alpha Q(g_i - h_i), and h by the mean of that. Sparse gradients are
    averaged in full. Where a gradient is not finite, neither is the mean, and nothing is
    remembered.

    Raises TypeError for gradients other than float32, float16 and bfloat16, CompressError where the
    operator does not fit a parameter, and the errors of the group; so does the future.
    """
    return average_compressed(state, bucket)
