"""The interface by which taps tell of a step. The observer alone implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sparsewire.profile.records.clock import Moment
from sparsewire.profile.records.step_record import Noted, Vector
from sparsewire.profile.taps.guard import Guard


class Sink(Protocol):
    """Takes what taps see while a step is recorded. It never raises."""

    def now(self) -> Moment: ...

    def ready(
        self, vector: Vector, parameters: Sequence[int], ready: Moment | None = None
    ) -> Noted | None:
        """A bucket is complete, now or at a moment; None where no step is recorded."""

    def sent(self, noted: Noted | None, future: Callable[[], Any]) -> None:
        """Note that the bucket's communication ends with the future."""

    def passed(self, parameter: int, begin: Moment) -> None:
        """A part of the backward pass that was a table's has ended now."""

    def updated(self, begin: Moment) -> None:
        """An optimizer's step has ended now."""

    def guarded(self) -> Guard:
        """A guard: a failure inside it ends the profile, and not the training."""
