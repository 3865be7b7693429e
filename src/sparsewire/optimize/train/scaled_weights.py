"""A weight vector that is shrunk as a whole and changed in few places, both at little cost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsewire import SparseVector
from sparsewire.optimize.problems.problem import Floats
from sparsewire.optimize.problems.sources import Rows

# Long before the scale could underflow.
_SMALLEST_SCALE = 1e-9


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
