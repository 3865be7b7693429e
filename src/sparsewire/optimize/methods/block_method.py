"""What the independent block methods have in common: each worker sends blocks of its own choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsewire.compress.message import Reader
from sparsewire.compress.seeded import RandK, SeededSparsifier
from sparsewire.compress.sparsifier import Kept
from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.methods.network import Network
from sparsewire.optimize.problems.problem import Floats, Problem

Booleans = npt.NDArray[np.bool_]


def one_of_n(problem: Problem) -> SeededSparsifier:
    """As many blocks as workers (or a few less, to be of equal size), of which each sends one.

    That is tau = 1/n, which costs hardly any steps by the theory of these methods.
    """
    block = -(-problem.dimension // problem.workers)
    return RandK(problem.dimension, 1, block, np.float64)


class BlockMethod(Method):
    """A method whose workers send x_U for random blocks U, independently of each other.

    Which blocks those are follows from a seed in the message, so no indices are sent. Only what
    goes to the server is compressed: the mean that all go on with is dense. K. Mishchenko, F.
    Hanzely and P. Richtarik, "99% of worker-master communication in distributed optimization is
    not needed" (UAI 2020).
    """

    def __init__(
        self,
        problem: Problem,
        network: Network,
        sparsifier: SeededSparsifier | None = None,
        **options: Any,
    ) -> None:
        """`sparsifier` draws the blocks of each worker; `_default` unless given.

        `options` are those of `Method`.
        """
        self.sparsifier = self._default(problem) if sparsifier is None else sparsifier
        super().__init__(problem, network, self.sparsifier, **options)

    @property
    def tau(self) -> float:
        """The probability of a block to be sent by a worker."""
        return 1 / self.sparsifier.scale

    def _default(self, problem: Problem) -> SeededSparsifier:
        return one_of_n(problem)

    def _send_blocks(self, vectors: Floats) -> tuple[Floats, Booleans]:
        """Send blocks of a vector (local, dimension) for each local worker; collective.

        Returns what all workers sent, without the sparsifier's scale and 0 elsewhere, and masks of
        what they sent: both of shape (workers, dimension).
        """
        codes, payloads = self._send_codes(vectors)
        shape = self.network.workers, self.problem.dimension
        sent, masks = np.zeros(shape), np.zeros(shape, np.bool_)
        for i, payload in enumerate(payloads):
            choice, values = codes[i] if i in codes else self._unpacked(payload)
            positions = self.sparsifier.blocks.elements(choice.blocks)
            masks[i, positions], sent[i, positions] = True, values
        return sent, masks

    def _unpacked(self, payload: bytes) -> Kept:
        reader = Reader(payload)
        code = self.sparsifier.unpack(reader)
        reader.end()
        return code
