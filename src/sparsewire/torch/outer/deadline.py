"""How long a round waits for a replica that is at its inner steps."""

from __future__ import annotations

import math
import time

from sparsewire.torch.outer.records import Arrivals

_GRACE_MIN_S = 5.0


class Deadline:
    """How long members wait for each other's inner steps.

    From the end of a round on, the median time of the last round's inner steps, and `grace` seconds
    more; None: as much again, and at least 5 s. Before the first round only the time limit of
    collectives holds.
    """

    def __init__(self, grace: float | None) -> None:
        self._grace = grace
        self._expected: float | None = None
        self._begun = time.monotonic()

    def begin(self, arrivals: Arrivals | None = None) -> None:
        """A round has ended, so the next inner steps begin."""
        self._begun = time.monotonic()
        if arrivals is not None and arrivals.worked() > 0:
            self._expected = arrivals.worked()

    def slack(self) -> float:
        """Seconds that others may come later than this replica, without being late."""
        if self._grace == math.inf:
            return math.inf
        return 0.0 if self._expected is None else max(0.0, self.left())

    def left(self) -> float:
        """Seconds until the round goes on without this replica's contribution."""
        if self._expected is None:
            return math.inf
        grace = max(_GRACE_MIN_S, self._expected) if self._grace is None else self._grace
        return self._begun + self._expected + grace - time.monotonic()
