"""The function that is minimised: the mean loss of the training rows, and an l2 term.

F(w) = 1/n sum_i loss(y_i x_i.w) + l2/2 |w|^2. There is no intercept: where one is
needed, the data has a feature that is always 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from sparsewire import SparseVector
from sparsewire.optimize.train.data import Csr
from sparsewire.optimize.train.losses import Floats, Loss


@dataclass(frozen=True)
class Problem:
    """The loss, the weight of the l2 term, and the size of the training data of all ranks."""

    loss: Loss
    l2: float
    rows: int
    features: int

    def objective(self, loss_sum: float, squared_norm: float) -> float:
        """F(w), from the sum of the losses of all training rows and |w|^2."""
        return loss_sum / self.rows + self.l2 / 2 * squared_norm

    def loss_gradient(self, batch: Csr, margins: Floats, factor: float) -> SparseVector:
        """`factor` times the gradient of the summed loss of a batch: float32, length `features`.

        `batch` (rows, features) holds signed rows, `margins` (rows,) is batch @ w. Only features
        that occur in the batch are in the result. The l2 term would name all of them, so it is
        left to whoever applies the gradient (see `ScaledWeights`).
        """
        slopes = csr_array(factor * self.loss.slope(margins)[np.newaxis])
        gradient = slopes @ batch
        gradient.sort_indices()
        return SparseVector(gradient.indices, gradient.data.astype(np.float32), self.features)
