"""Calls of a backend on one buffer or vector: made ready, run against the clock, then checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from sparsewire import SparseVector
from sparsewire.bench.case_data import as_dense
from sparsewire.bench.patterns import Array
from sparsewire.measure.prediction import Prediction


class Call(Protocol):
    """One call that can be repeated. Only `run` is timed."""

    exact: bool
    """Whether the result must have the bits of a sum in rank order."""
    prediction: Prediction | None

    def prepare(self) -> None:
        """Make the input, or what the result overwrites, as it was."""

    def run(self) -> None: ...
    def result(self) -> Array:
        """The last run's result as a dense vector of shape (elements,)."""


class InPlace:
    """Reduces a dense buffer, which `prepare` fills with the input."""

    prediction: Prediction | None = None

    def __init__(
        self, buffer: Array, given: Array, reduce: Callable[[], object], exact: bool
    ) -> None:
        self._buffer, self._given, self._reduce, self.exact = buffer, given, reduce, exact

    def prepare(self) -> None:
        np.copyto(self._buffer, self._given)

    def run(self) -> None:
        self._reduce()

    def result(self) -> Array:
        return self._buffer


class OfVector:
    """Reduces a sparse vector, which stays as it is; the result is new, or goes into `out`."""

    def __init__(
        self,
        reduce: Callable[[], object],
        out: Array | None,
        prediction: Prediction,
        exact: bool,
    ) -> None:
        self._reduce, self._out, self.exact = reduce, out, exact
        self.prediction: Prediction | None = prediction
        self._result: object = None

    def prepare(self) -> None:
        # Nothing of an earlier call may look like a result.
        self._result = None
        if self._out is not None:
            self._out.fill(1)

    def run(self) -> None:
        self._result = self._reduce()

    def result(self) -> Array:
        return as_dense(self._result)


class OfCooTensor:
    """Reduces a sparse_coo tensor in place with torch.distributed; `prepare` makes it anew."""

    exact = False
    prediction: Prediction | None = None

    def __init__(self, vector: SparseVector, reduce: Callable[[torch.Tensor], object]) -> None:
        indices = torch.from_numpy(vector.indices.astype(np.int64))[None]
        self._given = torch.sparse_coo_tensor(
            indices,
            torch.from_numpy(vector.values),
            vector.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        self._reduce = reduce
        self._tensor = self._given

    def prepare(self) -> None:
        self._tensor = self._given.clone()

    def run(self) -> None:
        self._reduce(self._tensor)

    def result(self) -> Array:
        return as_dense(self._tensor)
