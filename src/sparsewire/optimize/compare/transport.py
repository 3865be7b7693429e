"""Where the workers of a study are: in this process, or one on each rank; and what they sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sparsewire import Communicator
from sparsewire.optimize.methods.network import Distributed, Network, Simulated

Outcome = TypeVar("Outcome")


class Transport:
    """Workers that are simulated, or the ranks of a communicator."""

    def __init__(self, workers: int, comm: Communicator | None = None) -> None:
        self._workers, self._comm = workers, comm

    @property
    def is_simulated(self) -> bool:
        return self._comm is None

    def network(self) -> Network:
        """A fresh one for each method, as it counts."""
        return Simulated(self._workers) if self._comm is None else Distributed(self._comm)

    def counting(self, run: Callable[[], Outcome]) -> tuple[Outcome, float | None]:
        """What `run` gives, and the bytes that a rank put on the wire meanwhile; collective.

        Bytes are those of the communicator's own counter, the mean over ranks, with all framing;
        None where nothing is put on a wire.
        """
        if self._comm is None:
            return run(), None
        before = self._comm.stats()["bytes_sent"]
        outcome = run()
        sent = self._comm.stats()["bytes_sent"] - before
        (mean,) = self._comm.all_reduce(np.array([sent], np.float64), op="avg").tolist()
        return outcome, mean
