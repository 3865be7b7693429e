"""A sparsifier that sends what a step would show: what changes the bfloat16 of a parameter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sparsewire import _core
from sparsewire.compress.draws import Draws
from sparsewire.compress.marks import Blocks, Marks
from sparsewire.compress.sparsifier import Choice, Sparsifier
from sparsewire.compress.vectors import as_vector
from sparsewire.errors import CompressError

_INTERVAL = 2.0**-7 * (1 + 2.0**-8)
"""Numbers that round to one bfloat16 differ by less than this times any of them, ..."""
_LEAST_INTERVAL = 2.0**-133
"""... or by less than this, which is the smallest bfloat16."""


class Visible(Sparsifier):
    """Sends the elements x of which p - `rate` x is another bfloat16 than the parameter p. Biased.

    Compute-visible sparsification, which PULSELoCo does with pseudo-gradients (Miahi, Belilovsky,
    arXiv 2602.03839): the others would not change the next forward pass. `parameters`, shape
    (dimension,), are those that the vector is a step of; call `follow` when they change. They are
    zeros before. Parameters in float64 are rounded to float32 first.

    The message is empty where nothing shows. The error has an absolute bound, `error_bound`, and no
    relative one, so that contraction is 0. Zeros are never sent.
    """

    omega = float("inf")
    contraction = 0.0

    def __init__(
        self,
        dimension: int,
        rate: float = 1.0,
        dtype: DTypeLike = np.float32,
        parameters: ArrayLike | None = None,
    ) -> None:
        super().__init__(dimension, dtype=dtype)
        if not (rate > 0 and math.isfinite(rate)):
            raise CompressError(f"the rate must be a number above 0, not {rate}")
        self.rate = rate
        self._parameters = np.zeros(dimension, self.dtype)
        if parameters is not None:
            self.follow(parameters)

    def follow(self, parameters: Any) -> None:
        """Compare with these parameters from now on; raises CompressError as `encode` does."""
        self._parameters = as_vector(parameters, self.dimension, self.dtype).copy()

    @property
    def error_bound(self) -> float:
        """An upper bound on ||C(x) - x||^2: `rate` times what is dropped is in an interval."""
        norm = float(Blocks(self.dimension).norms(self._parameters)[0])
        squares = (_INTERVAL * norm) ** 2 + self.dimension * _LEAST_INTERVAL**2
        return squares / self.rate**2

    def choose(self, x: NDArray[Any], draws: Draws) -> Choice:
        marks = Marks.none(self.dimension)
        marks.count = _core.mark_visible(x, self._parameters, self.rate, marks.words)
        return Choice(marks)
