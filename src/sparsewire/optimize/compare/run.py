"""Runs one method until it has come close enough, or may go on no longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sparsewire.optimize.compare.experiment import Experiment
from sparsewire.optimize.compare.limits import Limits
from sparsewire.optimize.compare.method_options import Number
from sparsewire.optimize.compare.trace import Point, Trace
from sparsewire.optimize.methods.method import Method

Ending = Literal["reached", "out of rounds", "out of epochs", "diverged"]
"""The accuracy, the limit at which it was stopped, or no way back."""
Follow = Callable[[str, Point], None]
"""Takes a method's label and how far it has come; called now and then."""

_TOO_FAR = 1e6
"""So many times the first squared distance is divergence."""


@dataclass(frozen=True)
class Run:
    """What came of one method."""

    label: str
    method: str
    compressor: str | None
    options: dict[str, Number]
    """Of the method, where the user set some."""
    omega: float | None
    """None where the compressor is biased, or there is none."""
    contraction: float | None
    step_size: float
    rate: float | None
    """What the theory predicts: E Psi shrinks by 1 - rate per round. None: it says nothing."""
    ending: Ending
    points: list[Point]
    wire_bytes: float | None = None
    """What a rank really put on the wire, the mean over ranks; None for simulated workers.

    That is each message to every other rank, with framing and what the ranks agree on."""

    @property
    def last(self) -> Point:
        return self.points[-1]


def run(
    method: Method, experiment: Experiment, limits: Limits, follow: Callable[[Point], None]
) -> tuple[Ending, list[Point]]:
    """Step until one of the limits; collective. Every process ends at the same round."""
    trace = Trace()
    while True:
        distance = experiment.distance(method.x)
        ending = _ending(method, experiment, limits, distance)
        if ending is not None:
            trace.end(experiment.point(method, distance))
            follow(trace.points[-1])
            return ending, trace.points
        if trace.wants(method.rounds):
            point = experiment.point(method, distance)
            trace.add(point)
            follow(point)
        method.step()


def _ending(
    method: Method, experiment: Experiment, limits: Limits, distance: float
) -> Ending | None:
    if distance <= limits.accuracy * experiment.first_distance:
        return "reached"
    # Written so that it holds for what is no number, too.
    if not distance <= _TOO_FAR * experiment.first_distance:
        return "diverged"
    if method.rounds >= limits.rounds:
        return "out of rounds"
    rows = sum(experiment.problem.m[i] for i in method.network.local)
    return "out of epochs" if method.gradients >= limits.epochs * rows else None
