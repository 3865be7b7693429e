"""How a method came closer to the solution, in about as many points however long it took."""

from __future__ import annotations

from dataclasses import dataclass

POINTS = 200
"""A trace has up to twice as many."""


@dataclass(frozen=True)
class Point:
    """The state after `rounds` rounds."""

    rounds: int
    epochs: float
    """Passes over the data: component gradients by the number of components."""
    bits: float
    """Sent per worker, the mean over all."""
    seconds: float
    """What the communication takes on the link, by the model of it."""
    distance: float
    """|x - x*|^2."""
    suboptimality: float
    """F(x) - F(x*), down to the rounding errors of F."""


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
