"""Stochastic gradient descent over sparse all_reduce: rows are divided among the ranks."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from sparsewire import Communicator, SparseVector
from sparsewire.errors import OptimizeError
from sparsewire.tools.measure.wire_limit import ring_bytes
from sparsewire.tools.optimize.problems.examples import Examples, Rows, share
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.problem import Floats
from sparsewire.tools.optimize.train.scores import Judged, Scores, Stopwatch, score
from sparsewire.tools.optimize.train.training import Training

BATCH = 64
# Long before the scale could underflow.
_SMALLEST_SCALE = 1e-9


class Sgd:
    """Each step sums the sparse gradients of one mini-batch per rank, and every rank applies it.

    All ranks start from 0 and apply the same bits, so their models are equal at any time. In each
    epoch a rank goes through its rows once, in an order of its own. The step size at time t, in
    epochs, is step / sqrt(1 + t); the first one is half the inverse of the expected smoothness
    (Gower et al. 2019, theorem 3.1).
    """

    def __init__(
        self, comm: Communicator, problem: LinearModel, test: Examples, task: Training
    ) -> None:
        self._comm, self._problem = comm, problem
        rank, world_size = comm.rank, comm.world_size
        (self._rows,) = problem.m
        self._mine = problem.examples.select(share(self._rows, rank, world_size))
        self._test = test.select(share(len(test.labels), rank, world_size))
        self._random = np.random.default_rng([task.seed, rank])
        # Rounding to few bits is random, from seeds that all ranks share.
        self._rounding = np.random.default_rng([task.seed, world_size])
        batch = task.batch or BATCH
        # Ranks may differ by a row, but they must all make the same number of steps.
        self.steps = math.ceil(math.ceil(self._rows / world_size) / batch)
        self.dense_bytes = self.steps * ring_bytes(problem.dimension * 4, world_size)
        """Bytes that a rank would send in an epoch to sum dense float32 gradients around a ring."""
        self.step_size = task.step or 0.5 / expected_smoothness(
            comm, problem, self._mine.features, batch * world_size
        )
        if self.step_size * problem.l2 >= 1:
            raise OptimizeError(
                f"a step of {self.step_size:g} with --l2 {problem.l2:g} overshoots: "
                "their product must be below 1"
            )
        self._algorithm = task.algorithm or "auto"
        phases = task.precision.split(",") if task.precision else []
        self._precision = tuple(phases) if len(phases) > 1 else task.precision
        self._step = 0
        self.weights = ScaledWeights(problem.dimension)
        self.communication = Stopwatch()

    def epoch(self) -> None:
        """Go through the rows of all ranks once; collective."""
        order = self._random.permutation(len(self._mine.labels))
        for batch in np.array_split(order, self.steps):
            self._take_step(self._mine.select(batch))

    def scores(self) -> Scores:
        """Judge the current model; collective."""
        weights = self.weights.dense()
        # Every rank has the whole model, so one speaks for all.
        norm = float(weights @ weights) if self._comm.rank == 0 else 0.0
        return score(
            self._comm, self._problem, self._judged(self._mine), self._judged(self._test), norm
        )

    def _judged(self, examples: Examples) -> Judged:
        return self.weights.margins(examples.features), examples.labels

    def _take_step(self, batch: Examples) -> None:
        # Batches of an epoch hold each row once, so that their mean is the full gradient.
        gradient = loss_gradient(
            self._problem, batch, self.weights.margins(batch.features), self.steps / self._rows
        )
        with self.communication:
            total = self._comm.all_reduce(
                gradient,
                algorithm=self._algorithm,
                precision=self._precision,
                seed=int(self._rounding.integers(2**32)),
            )
        rate = self.step_size / math.sqrt(1 + self._step / self.steps)
        self.weights.shrink(1 - rate * self._problem.l2)
        self.weights.add(total, -rate)
        self._step += 1


def loss_gradient(
    problem: LinearModel, batch: Examples, margins: Floats, factor: float
) -> SparseVector:
    """`factor` times the gradient of the summed loss of a batch of CSR rows, in float32.

    `margins` (rows,) are batch.features @ w. Only features that occur in the batch are in the
    result. The l2 term would name all of them, so the caller that applies the gradient adds it (see
    `ScaledWeights`).
    """
    slopes = csr_array(factor * problem.slopes(margins, batch.labels)[np.newaxis])
    gradient = slopes @ batch.features
    gradient.sort_indices()
    return SparseVector(gradient.indices, gradient.data.astype(np.float32), problem.dimension)


class ScaledWeights:
    """w = scale * values, float64, of length `features`; zero at first.

    The gradient of l2/2 |w|^2 is l2 w, which has no zeros. A step along it only multiplies w by
    1 - rate l2, so it is done on the scale, in constant time, and the gradient that is sent
    stays sparse (L. Bottou, "Stochastic Gradient Descent Tricks", 2012, section 5.1).
    """

    def __init__(self, features: int) -> None:
        self._values: Floats = np.zeros(features)
        self._scale = 1.0

    def margins(self, rows: Rows) -> Floats:
        """rows @ w for a CSR array (rows, features)."""
        result: Floats = self._scale * (rows @ self._values)
        return result

    def shrink(self, factor: float) -> None:
        """Multiply w by `factor`, which is in (0, 1]."""
        self._scale *= factor
        if self._scale < _SMALLEST_SCALE:
            self._values *= self._scale
            self._scale = 1.0

    def add(self, change: SparseVector | npt.NDArray[np.floating], factor: float) -> None:
        """Add `factor` times `change`, which is sparse or a dense array of all features."""
        factor /= self._scale
        if isinstance(change, SparseVector):
            self._values[change.indices] += factor * change.values.astype(np.float64)
        else:
            self._values += factor * change.astype(np.float64)

    def dense(self) -> Floats:
        """w itself, as a new array."""
        return self._scale * self._values


def expected_smoothness(comm: Communicator, problem: LinearModel, mine: Rows, batch: int) -> float:
    """The smoothness constant of stochastic gradients of `batch` rows in total; collective.

    R. Gower et al., "SGD: General Analysis and Improved Rates" (ICML 2019), for batches drawn
    without replacement: with L of the whole objective and L_max of its worst row, of n rows,

        L(batch) = n (batch - 1) / (batch (n - 1)) L + (n - batch) / (batch (n - 1)) L_max.

    `mine` are this rank's rows, CSR. Every rank gets the same bits.
    """
    (rows,), curvature = problem.m, problem.curvature
    # The largest squared length of a row; 0 where there is none.
    worst = float(mine.multiply(mine).sum(axis=1).max(initial=0.0))
    whole = _squared_norm(mine) / rows
    # The norm of a sum is at most the sum of the norms, so this L is an upper bound.
    smooth = curvature * float(comm.all_reduce(np.array([whole]))[0]) + problem.l2
    worst = curvature * float(comm.all_reduce(np.array([worst]), op="max")[0]) + problem.l2
    batch = min(batch, rows)
    if batch == rows:
        return smooth
    return (rows * (batch - 1) * smooth + (rows - batch) * worst) / (batch * (rows - 1))


def _squared_norm(rows: Rows) -> float:
    """The largest eigenvalue of rows.T @ rows."""
    small = min(rows.shape)
    if small < 3:
        # Too small for the Lanczos method, which needs room for its vectors.
        norm = np.linalg.norm(rows.toarray(), 2) if small and rows.nnz else 0.0
    else:
        # A fixed start: the result must not differ from run to run.
        start = np.ones(small)
        norm = svds(rows, k=1, v0=start, tol=1e-3, return_singular_vectors=False)[0]
    return float(norm) ** 2
