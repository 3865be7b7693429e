"""Follows one model from backward pass to backward pass, and records some of them.

Whatever fails here is logged and ends the profile, on all ranks; the training goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch

from sparsewire.profile.company import Company, Message
from sparsewire.profile.records.clock import Clock, Moment, clock_of
from sparsewire.profile.records.output import Output
from sparsewire.profile.records.plan import Plan
from sparsewire.profile.records.step_record import Layout, Noted, StepRecord, Vector
from sparsewire.profile.schedule import Phase, Schedule
from sparsewire.profile.taps.guard import Guard
from sparsewire.profile.taps.taps import Tap

_logger = logging.getLogger(__name__)


class State(Enum):
    waiting = "for its first step that is recorded"
    recording = "steps"
    failed = "and has yet to tell the other ranks"
    over = "nothing is observed any more"


class Observer:
    """`widths` are those of the rows of tables, by the numbers of their parameters.

    `company` is None for a model that is on one rank alone.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        parameters: Sequence[torch.Tensor],
        widths: Mapping[int, int],
        plan: Plan,
        output: Output,
        company: Company | None,
    ) -> None:
        self._schedule, self._output, self._company = Schedule(plan), output, company
        self._layout = Layout([parameter.numel() for parameter in parameters], widths)
        self._device = parameters[0].device
        self._clock = clock_of(self._device)
        self._state = State.waiting
        self._taps: list[Tap] = []
        self._early: list[Tap] = []
        self._ending: Callable[[Clock | None], None] = lambda clock: None
        self._number, self._in_backward = -1, False
        self._record: StepRecord | None = None
        self._costs: list[float] = []
        self._durations: list[float] = []
        untraced: Any = torch.compiler.disable
        self._handle = module.register_forward_hook(untraced(self._forward))

    def observe(self, tap: Tap, *, forward: bool = False) -> None:
        """Have a tap tell this observer; before the first step.

        With `forward` it sees forward passes, and is installed before that of the first step.
        """
        self._taps.append(tap)
        if forward:
            self._early.append(tap)

    @property
    def is_over(self) -> bool:
        """Whether nothing is observed any more."""
        return self._state is State.over

    def guarded(self) -> Guard:
        """A guard: a failure inside it ends the profile, and not the training."""
        return Guard(self.fail)

    def fail(self, error: Exception) -> None:
        """End the profile for a reason, at the next sample where others have to be told."""
        _logger.warning(
            "the profile ends, and the training goes on without it: %s: %s",
            type(error).__name__,
            error,
            exc_info=_logger.isEnabledFor(logging.DEBUG),
        )
        self._record = None
        if self._state is not State.over:
            self._state = State.failed
            self._end_if_alone()

    def before_end(self, ending: Callable[[Clock | None], None]) -> None:
        """Have something done at the end; with the clock where all ranks are behind one step."""
        self._ending = ending

    def _rehearse(self) -> None:
        if self._state is State.recording:
            with self.guarded():
                self._clock.settle()
                self._ending(self._clock)

    def close(self) -> None:
        """Observe no more, and write what there is. Idempotent."""
        if self._state is State.over:
            return
        failed, self._state = self._state is State.failed, State.over
        self._record = None
        self._handle.remove()
        with self.guarded():
            for tap in self._taps:
                tap.remove()
            if not failed:
                self._ending(None)
                self._output.save()

    # Called by the model.

    def _forward(self, module: Any, inputs: Any, output: Any) -> None:
        # A backward pass without synchronisation only adds to gradients.
        if torch.is_grad_enabled() and getattr(module, "require_backward_grad_sync", True):
            self._in_backward = False
            with self.guarded():
                self._expect_backward(module, output)

    def _expect_backward(self, module: Any, output: Any) -> None:
        joining = getattr(module, "_join_config", None)
        if joining is not None and joining.enable:
            # Ranks without input take part in DDP's own sums, and in no others.
            self._company = None
        for tensor in _tensors_in(output):
            if tensor.requires_grad:
                register: Any = tensor.register_hook
                register(self._begin)

    def _begin(self, gradient: torch.Tensor) -> None:
        if self._in_backward or self._state is State.over:
            return
        self._in_backward = True
        self._number += 1
        with self.guarded():
            _when_done(self._end_of_graph)
            self._finish_step()
            self._begin_step(self._schedule.phase(self._number))

    def _finish_step(self) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        step = record.finished(self._clock.now())
        self._output.add(step)
        if not step.sampled:
            self._durations.append(step.duration_s)

    def _begin_step(self, phase: Phase) -> None:
        if phase is Phase.over:
            self._rehearse()
            self.close()
            return
        if self._schedule.is_first(self._number + 1):
            for tap in self._early:
                tap.install()
        if self._schedule.is_first(self._number):
            self._start()
        if self._state is State.recording:
            for tap in self._taps:
                tap.begin()
            sampled = phase is Phase.sampled
            self._record = StepRecord(self._number, self._clock, self._layout, sampled=sampled)

    def _start(self) -> None:
        # All ranks have summed gradients since they made their models, so each has joined by now.
        if self._company is not None and not self._company.is_complete():
            _logger.warning(
                "not all ranks record a profile of the same steps: densities are of each rank alone"
            )
            self._company = None
        if self._state is State.failed:
            self._end_if_alone()
            return
        for tap in self._taps:
            if tap not in self._early:
                tap.install()
        self._state = State.recording

    def _end_if_alone(self) -> None:
        if self._company is None:
            self.close()

    def _end_of_graph(self) -> None:
        # DDP's own callback is behind this one, and waits for its buckets.
        with self.guarded():
            _when_done(self._end)

    def _end(self) -> None:
        self._in_backward = False
        if self._state is State.over:
            return
        with self.guarded():
            if self._record is not None:
                self._record.end = self._clock.now()
                for tap in self._taps:
                    tap.end()
        if self._schedule.phase(self._number) is Phase.sampled:
            with self.guarded():
                self._sample()

    def _sample(self) -> None:
        """Bring together what the step's buckets were found to hold. Collective."""
        message, looking = None, 0.0
        begin = time.perf_counter()
        with self.guarded():
            self._clock.settle()
            begin = time.perf_counter()
            looking = self._record.looking_s() if self._record else 0.0
            message = self._message(looking)
        sums = None
        if self._company is not None:
            sums = self._company.sums(message, self._device)
            if sums is None:
                self._end_for_others()
                return
        # Before anything else can fail: the others now expect this rank at the next sample.
        self._schedule.sampled(self._number, sums.interval if sums else self._interval(looking))
        if self._record is not None:
            if sums is not None:
                self._record.unite(sums.blocks)
            self._output.sample(self._record)
            self._record.read()
        self._costs.append(looking + time.perf_counter() - begin)

    def _message(self, looking: float) -> Message | None:
        """This rank's message to the others; None if it has failed."""
        if self._record is None or self._company is None:
            return None
        masks = self._record.block_masks()
        return self._company.message(masks, self._interval(looking), self._device)

    def _interval(self, looking: float) -> int:
        return self._schedule.interval([*self._costs, looking], self._durations)

    def _end_for_others(self) -> None:
        if self._state is not State.failed:
            _logger.warning("the profile ends, for it has failed on another rank: see its log")
        self.close()

    # Called by taps.

    def now(self) -> Moment:
        return self._clock.now()

    def ready(
        self, vector: Vector, parameters: Sequence[int], ready: Moment | None = None
    ) -> Noted | None:
        record = self._record
        if record is None:
            return None
        with self.guarded():
            return record.ready(vector, parameters, self._clock.now() if ready is None else ready)
        return None

    def passed(self, parameter: int, begin: Moment) -> None:
        if self._record is not None:
            self._record.tables.append((parameter, begin, self._clock.now()))

    def updated(self, begin: Moment) -> None:
        if self._record is not None:
            self._record.optimizers.append((begin, self._clock.now()))

    def sent(self, noted: Noted | None, future: Callable[[], Any]) -> None:
        if noted is not None:
            with self.guarded():
                future().add_done_callback(lambda _: self._note_end(noted))

    def _note_end(self, noted: Noted) -> None:
        with self.guarded():
            noted.end = self._clock.now()


def _tensors_in(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in a model's output, also in lists, dictionaries or dataclasses."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        yield from _tensors_in(list(output.values()))
    elif is_dataclass(output):
        yield from _tensors_in([getattr(output, field.name) for field in fields(output)])
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _tensors_in(part)


def _when_done(callback: Callable[[], None]) -> None:
    """Have the autograd engine call back at the end of the backward pass that runs."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(callback)
