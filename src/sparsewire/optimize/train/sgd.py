"""Stochastic gradient descent over sparse all_reduce: rows are divided among the ranks."""

from __future__ import annotations

import math

import numpy as np

from sparsewire import Communicator
from sparsewire.errors import OptimizeError
from sparsewire.measure.wire_limit import ring_bytes
from sparsewire.optimize.train.data import Csr, share
from sparsewire.optimize.train.problem import Problem
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.scaled_weights import ScaledWeights
from sparsewire.optimize.train.scores import Scores, score
from sparsewire.optimize.train.smoothness import expected_smoothness
from sparsewire.optimize.train.stopwatch import Stopwatch

BATCH = 64


class Sgd:
    """Each step sums the sparse gradients of one mini-batch per rank, and every rank applies it.

    All ranks start from 0 and apply the same bits, so their models are equal at any time. In each
    epoch a rank goes through its rows once, in an order of its own. The step size at time t, in
    epochs, is step / sqrt(1 + t); the first one is half the inverse of the expected smoothness
    (Gower et al. 2019, theorem 3.1).
    """

    def __init__(
        self, comm: Communicator, problem: Problem, training: Csr, test: Csr, request: Request
    ) -> None:
        self._comm, self._problem = comm, problem
        rank, world_size = comm.rank, comm.world_size
        self._rows = training[share(training.shape[0], rank, world_size)]
        self._test = test[share(test.shape[0], rank, world_size)]
        self._random = np.random.default_rng([request.seed, rank])
        # Rounding to few bits is random, from seeds that all ranks share.
        self._rounding = np.random.default_rng([request.seed, world_size])
        batch = request.batch or BATCH
        # Ranks may differ by a row, but they must all make the same number of steps.
        self.steps = math.ceil(math.ceil(problem.rows / world_size) / batch)
        self.step_size = request.step or self._safe_step(batch * world_size)
        if self.step_size * problem.l2 >= 1:
            raise OptimizeError(
                f"a step of {self.step_size:g} with --l2 {problem.l2:g} overshoots: "
                "their product must be below 1"
            )
        self._algorithm = request.algorithm or "auto"
        self._precision = _precision(request.precision)
        self._step = 0
        self.weights = ScaledWeights(problem.features)
        self.communication = Stopwatch()

    @property
    def dense_bytes(self) -> float:
        """What a rank would send in an epoch to sum dense float32 gradients around a ring."""
        return self.steps * ring_bytes(self._problem.features * 4, self._comm.world_size)

    def epoch(self) -> None:
        """Go through the rows of all ranks once; collective."""
        order = self._random.permutation(self._rows.shape[0])
        for batch in np.array_split(order, self.steps):
            self._take_step(self._rows[batch])

    def scores(self) -> Scores:
        """Judge the current model; collective."""
        weights = self.weights.dense()
        # Every rank has the whole model, so one speaks for all.
        norm = float(weights @ weights) if self._comm.rank == 0 else 0.0
        margins = self.weights.margins(self._rows), self.weights.margins(self._test)
        return score(self._comm, self._problem, *margins, norm)

    def _take_step(self, batch: Csr) -> None:
        problem = self._problem
        # Batches of an epoch hold each row once, so that their mean is the full gradient.
        factor = self.steps / problem.rows
        gradient = problem.loss_gradient(batch, self.weights.margins(batch), factor)
        with self.communication:
            total = self._comm.all_reduce(
                gradient,
                algorithm=self._algorithm,
                precision=self._precision,
                seed=int(self._rounding.integers(2**32)),
            )
        rate = self.step_size / math.sqrt(1 + self._step / self.steps)
        self.weights.shrink(1 - rate * problem.l2)
        self.weights.add(total, -rate)
        self._step += 1

    def _safe_step(self, batch: int) -> float:
        return 0.5 / expected_smoothness(self._comm, self._problem, self._rows, batch)


def _precision(text: str | None) -> str | tuple[str, ...] | None:
    return tuple(text.split(",")) if text and "," in text else text
