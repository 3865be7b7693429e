"""What the hooks for any compressor share: the operators, their randomness, and the records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.torch.hooks.bucket_gradients import BucketGradients, is_zero
from sparsewire.torch.hooks.hook_state import HookState
from sparsewire.torch.hooks.means import Mean, mean_of
from sparsewire.torch.hooks.operators import MakeCompressor, maker_of, operator_for, show
from sparsewire.torch.hooks.parameter_map import ParameterMap
from sparsewire.torch.hooks.records import Record
from sparsewire.torch.hooks.saved import Saved, own_state
from sparsewire.torch.hooks.scratch import Scratch
from sparsewire.torch.hooks.sent import Coded, Exact, Sent
from sparsewire.torch.hooks.transport import transport_of


class SavedDraws(Saved, total=False):
    """The state of one rank with the random draws of its parameters, if there are any."""

    job: str
    """What tells the draws that begin in this job from those of jobs of other sizes before."""
    streams: dict[str, dict[str, Any]]


class CompressedState(HookState, ABC):
    """A hook's settings, and for each parameter an operator, draws and what subclasses add.

    A subclass says what is compressed in place of a gradient, and what follows from the mean. All
    vectors are float32 on the CPU, shape (elements of the parameter,).
    """

    owes: ClassVar[bool]
    """Whether what is not sent is owed. It then stays so where no rank has a gradient: DDP gives
    the optimizer nothing for parameters that no rank has used, whatever a hook makes of them."""

    def __init__(
        self,
        process_group: dist.ProcessGroup | None,
        compressor: str | MakeCompressor,
        warmup_steps: int,
        overlap: bool,
        min_elements: int,
        seed: int,
    ) -> None:
        super().__init__(warmup_steps)
        if min_elements < 0:
            raise ValueError(f"min_elements must not be negative, not {min_elements}")
        self._make = maker_of(compressor, self.adapt)
        self.overlap = overlap
        self.min_elements = min_elements
        self.seed = seed
        self.waiting: list[tuple[BucketGradients, torch.futures.Future[torch.Tensor]]] = []
        """Without overlap, the buckets of this step that wait for the last one."""
        self.operators = ParameterMap(lambda parameter: operator_for(self._make, parameter))
        self._draws = ParameterMap(self._new_draws)
        self._draws_made = 0
        self._job = ""
        self._scratch = Scratch()
        self.transport = transport_of(process_group)

    @abstractmethod
    def code(self, operator: Compressor, parameter: torch.Tensor, gradient: torch.Tensor) -> Any:
        """Turn a gradient, in place, into what is compressed; the code of that.

        Raises CompressError, after that, where the operator cannot express it.
        """

    @abstractmethod
    def estimate(self, parameter: torch.Tensor, mean: Mean, gradient: torch.Tensor) -> None:
        """Make the gradient for the optimizer from the mean of what the ranks sent."""

    @abstractmethod
    def learn(
        self,
        parameter: torch.Tensor,
        mean: Mean,
        own: Sent,
        gradient: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        """The same, and remember what was sent; the optimizer gets it rounded to `dtype`."""

    @abstractmethod
    def adapt(self, operator: Compressor) -> Compressor:
        """An operator as the method takes it; raises ValueError where it takes none like it."""

    def encode(self, parameter: torch.Tensor, gradient: torch.Tensor) -> Sent:
        """What this rank sends of a gradient, which becomes what was compressed."""
        if not self._is_compressed(parameter):
            return Exact(gradient.numpy())
        is_idle = is_zero(gradient)
        operator = self.operators.of(parameter)
        show(operator, parameter)
        try:
            return Coded(operator, self.code(operator, parameter, gradient), is_idle)
        except CompressError:
            # Not finite: all ranks must see it, as without compression. Or too large for the code.
            return Exact(gradient.numpy(), is_idle)

    def settle(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        own: Sent,
        records: Sequence[Record],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Put the mean over all ranks in place of what `encode` left, and learn from it.

        `own` is what `encode` gave; the gradient goes to the optimizer in `dtype`. Raises
        CompressError where a record is malformed.
        """
        if self._is_compressed(parameter) and self.owes and all(r.is_idle for r in records):
            gradient.zero_()
            return
        rank = self.transport.rank
        sent = [own if i == rank else self._sent(parameter, r) for i, r in enumerate(records)]
        mean = mean_of(sent, rank, parameter.numel(), self._scratch)
        if not self._is_compressed(parameter):
            mean.write(gradient)
        elif mean.is_finite(dtype):
            self.learn(parameter, mean, own, gradient, dtype)
        else:
            # What is not finite would stay in the memory of the method for ever, and scaling of the
            # loss skips such a step. The mean has the same bits on all ranks: all do the same.
            self.estimate(parameter, mean, gradient)

    def _sent(self, parameter: torch.Tensor, record: Record) -> Sent:
        if record.is_exact:
            return Exact.read(record, parameter.numel())
        operator = self.operators.of(parameter)
        return Coded(operator, operator.read(record.payload))

    def draws_of(self, parameter: torch.Tensor) -> Draws:
        """What random choices for a parameter are drawn from."""
        return self._draws.of(parameter)

    def _is_compressed(self, parameter: torch.Tensor) -> bool:
        return parameter.numel() >= max(self.min_elements, 1)

    def _new_draws(self, parameter: torch.Tensor) -> Draws:
        """One for each, so that what is drawn does not depend on the order of the buckets."""
        self._draws_made += 1
        name = self.name_of(parameter) or str(self._draws_made)
        return Draws(self.seed, self.transport.rank, f"{self._job}/{name}")

    def _saved_draws(self) -> SavedDraws:
        draws = self._draws.named(self.parameters)
        states = {name: each.state() for name, each in draws.items()}
        return {**self._saved(), "job": self._job, "streams": states}

    def _restore_draws(self, states: Sequence[SavedDraws]) -> None:
        """Take the step, and this rank's draws where it was a rank of the same job."""
        own = own_state(states, self.transport.rank, self.transport.size)
        saved: Mapping[str, dict[str, Any]] = own.get("streams", {}) if own else {}
        draws = {name: Draws.from_state(state) for name, state in saved.items()}
        self._draws.replace(draws, self.parameters)
        self.step = states[0]["step"]
        # Otherwise ranks would draw again what ranks drew at the start of the old job.
        before = states[0].get("job", "")  # States that were saved before jobs had names have none.
        resized = f"{before}/{self.transport.size} ranks after {self.step} steps"
        self._job = before if own else resized
