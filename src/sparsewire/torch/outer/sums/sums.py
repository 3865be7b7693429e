"""The interface of the ways to add up what members contribute to a round; it is a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire.collectives.communicator import Communicator

Vector = NDArray[np.float32]


class Added(NamedTuple):
    """What a round's collectives gave, before anyone knows whether the round counts."""

    total: Vector
    """The sum over the contributors, shape (elements,), of the same bits on every member.

    It is valid until the next run.
    """
    sent: Any
    """The code of what this member contributed, for `take_off`; None if it contributed nothing."""
    contributors: int
    """How many members contributed."""


class Sums(ABC):
    """One way to add vectors of `elements` elements, float32, over the members of a communicator.

    `run` leaves everything as it was until `commit`; after `abort` it is as if it never ran.
    """

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self._room: Vector | None = None
        self._parameters: Vector | None = None

    def _total(self) -> Vector:
        """Memory for the sum of a round, undefined; it is that of the round before.

        Fresh memory of large vectors would cost more than adding does.
        """
        if self._room is None:
            self._room = np.zeros(self.elements, np.float32)
        return self._room

    def _zeros(self) -> Vector:
        """Zeros for the sum of a round, in the memory of the round before."""
        total = self._total()
        total.fill(0)
        return total

    @abstractmethod
    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        """Add up the vectors of all members; collective, blocking, in the same order on all.

        `vector`, shape (elements,), is not changed, and the caller must not change it before
        `take_off`, because a code may be the vector itself. None contributes nothing. `timeout` in
        seconds is for each collective. Raises the engine's errors. Raises CompressError if a
        contribution cannot be encoded, decoded or added: this member has taken part in all
        collectives by then, so the communicator goes on. Others may have a sum all the same, so a
        vote must decide whether the round counts.
        """

    def follow(self, parameters: Vector) -> None:
        """Compare the next vectors with these parameters, as some operators do; not collective."""
        self._parameters = parameters

    @abstractmethod
    def take_off(self, sent: Any, residual: Vector) -> None:
        """Subtract what was contributed, `Added.sent`, from `residual`, shape (elements,)."""

    def commit(self) -> None:  # noqa: B027
        """The last run counts: what owners keep advances."""

    def abort(self) -> None:  # noqa: B027
        """The last run does not count: what owners keep stays as it was before."""

    def reset(self, residual: Vector | None = None) -> float:
        """Forget what belongs to the present membership, because it has changed.

        What this member owes as an owner is added to its own `residual`, shape (elements,), so that
        nothing is lost. Returns the norm of what is lost: of what is owed if there is no residual.
        """
        return 0.0
