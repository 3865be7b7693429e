"""Densities are those that NumPy counts: -0.0 is zero, NaN is not, the last block may be short."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra.numpy import arrays  # noqa: E402

from sparsewire.profile.records.marks import BLOCK, Counted, Marks  # noqa: E402

pytestmark = pytest.mark.timeout(60)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
VALUES = st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0, -2.5, float("nan"), float("inf")])
vectors = arrays(np.float64, st.integers(1, 3 * BLOCK + 5), elements=VALUES, fill=st.just(0.0))


def expected(vector: np.ndarray) -> tuple[float, float]:
    nonzero = vector != 0
    blocks = [nonzero[i : i + BLOCK].any() for i in range(0, len(vector), BLOCK)]
    return nonzero.mean(), np.mean(blocks)


@given(vectors, st.sampled_from(DTYPES))
def test_dense(vector: np.ndarray, dtype: torch.dtype) -> None:
    marks = Marks.of(torch.from_numpy(vector).to(dtype))
    np.testing.assert_array_equal(marks.bytes.numpy(), vector != 0)
    assert Counted(marks).density() == pytest.approx(expected(vector))


@given(vectors, st.data())
def test_parts_have_blocks_of_their_own(vector: np.ndarray, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(vector) - 1))
    end = data.draw(st.integers(begin + 1, len(vector)))
    part = Marks.of(torch.from_numpy(vector)).part(begin, end)
    assert Counted(part).density() == pytest.approx(expected(vector[begin:end]))


@given(
    st.lists(st.integers(0, 19), max_size=8),
    st.integers(1, 2),
    st.integers(0, 3),
)
def test_sparse(rows: list[int], axes: int, zeros: int) -> None:
    """Rows may come twice, and hold zeros."""
    shape = (20, 70) if axes == 1 else (4, 5, 70)
    numbers = np.array(rows, np.int64)
    indices = torch.tensor(np.array(np.unravel_index(numbers, shape[:-1])))
    values = torch.ones(len(rows), 70)
    values[:, :zeros] = 0
    gradient = torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
    marks = Marks.of(gradient)
    dense = gradient.to_dense().reshape(-1).numpy()
    np.testing.assert_array_equal(marks.bytes.numpy(), dense != 0)
    assert Counted(marks).density() == pytest.approx(expected(dense))


def test_full_blocks() -> None:
    """Where bytes would overflow, if they could."""
    ones = Marks.of(torch.ones(5 * BLOCK))
    assert ones.counts().tolist() == [BLOCK] * 5
