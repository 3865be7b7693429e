"""Calls of a backend on one buffer or vector: made ready, run against the clock, then checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sparsewire import SparseVector
from sparsewire.bench.patterns import Array
from sparsewire.measure.prediction import Prediction


@dataclass(frozen=True)
class Call:
    """One call that can be repeated. Only `run` is timed."""

    prepare: Callable[[], object]
    """Makes the input, or what the result overwrites, as it was."""
    run: Callable[[], object]
    result: Callable[[], Array]
    """The last run's result as a dense vector of shape (elements,)."""
    exact: bool = False
    """Whether the result must have the bits of a sum in rank order."""
    prediction: Prediction | None = None


def in_place(buffer: Array, given: Array, reduce: Callable[[], object], *, exact: bool) -> Call:
    """Reduces a dense buffer, which is filled with what is given."""
    return Call(lambda: np.copyto(buffer, given), reduce, lambda: buffer, exact)


def of_vector(
    reduce: Callable[[], object], out: Array | None, prediction: Prediction, *, exact: bool
) -> Call:
    """Reduces a sparse vector, which stays as it is; the result is new, or goes into `out`."""
    result: list[object] = [None]

    def prepare() -> None:
        # Nothing of an earlier call may look like a result.
        result[0] = None
        if out is not None:
            out.fill(1)

    def run() -> None:
        result[0] = reduce()

    return Call(prepare, run, lambda: _as_dense(result[0]), exact, prediction)


def of_coo_tensor(vector: SparseVector, reduce: Callable[[torch.Tensor], object]) -> Call:
    """Reduces a sparse_coo tensor in place with torch.distributed; each time it is made anew."""
    given = torch.sparse_coo_tensor(
        torch.from_numpy(vector.indices.astype(np.int64))[None],
        torch.from_numpy(vector.values),
        vector.shape,
        is_coalesced=True,
        check_invariants=False,
    )
    tensor = [given]

    def prepare() -> None:
        tensor[0] = given.clone()

    return Call(prepare, lambda: reduce(tensor[0]), lambda: tensor[0].to_dense().numpy())


def _as_dense(result: object) -> Array:
    if isinstance(result, SparseVector):
        return result.to_dense()
    assert isinstance(result, np.ndarray)
    return result
