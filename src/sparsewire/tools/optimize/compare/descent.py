"""Runs one method until it has come close enough, or may go on no longer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sparsewire import Communicator
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.optimize.compare.candidate import Candidate
from sparsewire.tools.optimize.compare.registry import Setting
from sparsewire.tools.optimize.compare.task import Limits
from sparsewire.tools.optimize.compare.yardstick import Point, Yardstick
from sparsewire.tools.optimize.methods.method import Method

Ending = Literal["reached", "out of rounds", "out of epochs", "diverged"]
"""The accuracy, the limit at which it was stopped, or no way back."""

_TOO_FAR = 1e6
"""A method diverges at so many times the first squared distance."""
POINTS = 200
"""A trace has up to twice as many."""


@dataclass(frozen=True)
class Descent:
    """The outcome of one method."""

    label: str
    method: str
    compressor: str | None
    options: dict[str, Setting]
    """The method's options that the user set."""
    omega: float | None
    """None where the compressor is biased, or there is none."""
    contraction: float | None
    step_size: float
    rate: float | None
    """The theory's prediction: E Psi shrinks by 1 - rate per round. None: there is none."""
    ending: Ending
    points: list[Point]
    wire_bytes: float | None = None
    """Bytes that a rank really put on the wire, mean over ranks; None for simulated workers.

    They count each message to every other rank, with framing and the ranks' agreements."""

    @property
    def last(self) -> Point:
        return self.points[-1]


class Trace:
    """Points at equal strides, which double each time there are too many; and the last one."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._stride = 1

    def wants(self, rounds: int) -> bool:
        """Whether to add the point after so many rounds."""
        return rounds % self._stride == 0

    def add(self, point: Point) -> None:
        """Take a point that is wanted."""
        self.points.append(point)
        if len(self.points) > 2 * POINTS:
            self.points = self.points[::2]
            self._stride *= 2

    def end(self, point: Point) -> None:
        """Take the last point, wanted or not."""
        if not self.points or self.points[-1].rounds != point.rounds:
            self.points.append(point)


def descend(
    candidate: Candidate,
    method: Method,
    yardstick: Yardstick,
    limits: Limits,
    comm: Communicator | None,
    move: Move,
) -> Descent:
    """Run one method that `candidate` has built, over `comm` or simulated; collective.

    A bar is full where the squared distance is so small a part of what it was as the limits say.
    """

    def follow(point: Point) -> None:
        share = point.distance / yardstick.first_distance
        state = f"|x - x*|² {share:.1e} of the first after {point.rounds:,} rounds"
        done = max(0.0, -math.log(share)) if share > 0 else 0.0
        move(candidate.label, done, -math.log(limits.accuracy), state)

    before = comm.stats()["bytes_sent"] if comm else 0
    ending, points = _steps(method, yardstick, limits, follow)
    omega = method.omega if method.compressors else math.inf
    return Descent(
        label=candidate.label,
        method=candidate.method,
        compressor=candidate.compressor,
        options=candidate.options,
        omega=omega if math.isfinite(omega) else None,
        contraction=method.contraction if method.compressors else None,
        step_size=method.gamma,
        rate=method.rate,
        ending=ending,
        points=points,
        wire_bytes=_mean_bytes(comm, before) if comm else None,
    )


def _mean_bytes(comm: Communicator, before: int) -> float:
    """Bytes that a rank has put on the wire since its counter said `before`; collective."""
    sent = comm.stats()["bytes_sent"] - before
    (mean,) = comm.all_reduce(np.array([sent], np.float64), op="avg").tolist()
    return float(mean)


def _steps(
    method: Method, yardstick: Yardstick, limits: Limits, follow: Callable[[Point], None]
) -> tuple[Ending, list[Point]]:
    """Step until one of the limits; collective. Every process ends at the same round."""
    trace = Trace()
    while True:
        distance = yardstick.distance(method.x)
        ending = _ending(method, yardstick, limits, distance)
        if ending is not None:
            trace.end(yardstick.point(method, distance))
            follow(trace.points[-1])
            return ending, trace.points
        if trace.wants(method.rounds):
            point = yardstick.point(method, distance)
            trace.add(point)
            follow(point)
        method.step()


def _ending(method: Method, yardstick: Yardstick, limits: Limits, distance: float) -> Ending | None:
    if distance <= limits.accuracy * yardstick.first_distance:
        return "reached"
    # Written so that it holds for what is no number, too.
    if not distance <= _TOO_FAR * yardstick.first_distance:
        return "diverged"
    if method.rounds >= limits.rounds:
        return "out of rounds"
    rows = sum(yardstick.problem.m[i] for i in method.network.local)
    return "out of epochs" if method.gradients >= limits.epochs * rows else None
