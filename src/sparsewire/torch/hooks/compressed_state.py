"""What the hooks for any compressor share: the operators, their randomness, and the records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from sparsewire._core import first_not_finite
from sparsewire.compress import CompressError, Compressor, Stream
from sparsewire.torch.hooks.bucket_gradients import BucketGradients, is_zero
from sparsewire.torch.hooks.hook_state import HookState
from sparsewire.torch.hooks.operators import MakeCompressor, maker_of, operator_for, show
from sparsewire.torch.hooks.parameter_map import ParameterMap
from sparsewire.torch.hooks.records import Record
from sparsewire.torch.hooks.saved import Saved, own_state
from sparsewire.torch.hooks.scratch import Scratch
from sparsewire.torch.hooks.sent import Coded, Exact, Sent
from sparsewire.torch.hooks.transport import transport_of


class SavedStreams(Saved):
    """The state of one rank with the random streams of its parameters."""

    job: str
    """What tells the streams that begin in this job from those of jobs of other sizes before."""
    streams: dict[str, dict[str, Any]]


class CompressedState(HookState, ABC):
    """A hook's settings, and for each parameter an operator, a stream and what subclasses add.

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
        self._streams = ParameterMap(self._stream)
        self._streams_made = 0
        self._job = ""
        self._scratch = Scratch()
        self.transport = transport_of(process_group)

    @abstractmethod
    def prepare(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Turn a gradient, in place, into what is compressed."""

    @abstractmethod
    def remember(self, parameter: torch.Tensor, prepared: torch.Tensor, own: Sent) -> None:
        """Remember what was to be sent, and what this rank sent of it."""

    @abstractmethod
    def estimate(self, parameter: torch.Tensor, mean: torch.Tensor, gradient: torch.Tensor) -> None:
        """Make the gradient for the optimizer from the mean of what the ranks sent."""

    @abstractmethod
    def follow(self, parameter: torch.Tensor, mean: torch.Tensor, dtype: torch.dtype) -> None:
        """Remember that mean, which may be overwritten, after its estimate is made.

        The optimizer gets it rounded to `dtype`.
        """

    @abstractmethod
    def adapt(self, operator: Compressor) -> Compressor:
        """An operator as the method takes it; raises ValueError where it takes none like it."""

    def encode(self, parameter: torch.Tensor, gradient: torch.Tensor) -> Sent:
        """What this rank sends of a gradient, which becomes what was compressed."""
        if not self._is_compressed(parameter):
            return Exact(gradient.numpy())
        is_idle = is_zero(gradient)
        self.prepare(parameter, gradient)
        operator = self.operators.of(parameter)
        try:
            show(operator, parameter)
            code = operator.code(gradient, self._streams.of(parameter))
            return Coded(operator, code, is_idle)
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
        if not self._is_compressed(parameter):
            gradient.copy_(self._mean(parameter, own, records))
        elif self.owes and all(record.is_idle for record in records):
            gradient.zero_()
        else:
            self._learn(parameter, gradient, own, self._mean(parameter, own, records), dtype)

    def _learn(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        own: Sent,
        mean: torch.Tensor,
        dtype: torch.dtype,
    ) -> None:
        # What is not finite would stay in the memory of the method for ever, and scaling of the
        # loss skips such a step. The mean has the same bits on all ranks, so that all do the same.
        learns = _is_finite(mean, dtype)
        if learns:
            self.remember(parameter, gradient, own)
        self.estimate(parameter, mean, gradient)
        if learns:
            self.follow(parameter, mean, dtype)

    def _mean(self, parameter: torch.Tensor, own: Sent, records: Sequence[Record]) -> torch.Tensor:
        """The mean of what the records say, added in rank order."""
        total = self._scratch.zeros(parameter.numel())
        for rank, record in enumerate(records):
            sent = own if rank == self.transport.rank else self._sent(parameter, record)
            sent.add_to(total)
        return total.div_(self.transport.size)

    def _sent(self, parameter: torch.Tensor, record: Record) -> Sent:
        if record.is_exact:
            return Exact.read(record, parameter.numel())
        operator = self.operators.of(parameter)
        return Coded(operator, operator.read(record.payload))

    def _is_compressed(self, parameter: torch.Tensor) -> bool:
        return parameter.numel() >= max(self.min_elements, 1)

    def _stream(self, parameter: torch.Tensor) -> Stream:
        """One for each, so that what is drawn does not depend on the order of the buckets."""
        self._streams_made += 1
        name = self.name_of(parameter) or str(self._streams_made)
        return Stream(self.seed, self.transport.rank, f"{self._job}/{name}")

    def _saved_streams(self) -> SavedStreams:
        streams = self._streams.named(self.parameters)
        states = {name: stream.state() for name, stream in streams.items()}
        return {**self._saved(), "job": self._job, "streams": states}

    def _restore_streams(self, states: Sequence[SavedStreams]) -> None:
        """Take the step, and this rank's streams where it was a rank of the same job."""
        own = own_state(states, self.transport.rank, self.transport.size)
        saved: Mapping[str, dict[str, Any]] = own["streams"] if own else {}
        streams = {name: Stream.from_state(state) for name, state in saved.items()}
        self._streams.replace(streams, self.parameters)
        self.step = states[0]["step"]
        # Otherwise ranks would draw again what ranks drew at the start of the old job.
        before = states[0].get("job", "")  # States that were saved before jobs had names have none.
        resized = f"{before}/{self.transport.size} ranks after {self.step} steps"
        self._job = before if own else resized


def _is_finite(vector: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether all elements are, once they are rounded to `dtype`."""
    rounded = vector.to(dtype).to(torch.float32)
    return first_not_finite(rounded.numpy()) == rounded.numel()
