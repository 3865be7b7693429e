"""SparseVector: what it takes, keeps and refuses; and how its rows are cut for the engine."""

from __future__ import annotations

import array
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsewire
from sparsewire import SparseVector
from sparsewire._core import ROW_MAX, ROW_MIN
from sparsewire.collectives.request import Form, form_of
from sparsewire.collectives.sparse import join_rows, read, row_for
from sparsewire.sparse_vector import ELEMENTS_MAX

DTYPES: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_keeps_arrays_as_they_are(dtype: Any, kind: Any) -> None:
    indices, values = np.array([2, 5, 9], kind), np.array([1, 0, 3], dtype)
    vector = SparseVector(indices, values, 10)
    assert vector.indices is indices
    assert vector.values is values
    assert (vector.length, vector.nnz, vector.density) == (10, 3, 0.3)
    assert (vector.shape, vector.dtype) == ((10,), np.dtype(dtype))
    assert vector.to_dense().tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 3]
    assert vector.to_dense().dtype == dtype


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0.1, 2], np.float32),
        ((0.1, 2.0), np.float32),
        ([np.inf, -np.inf], np.float32),
        ([1, 2], np.int64),
        # What has a dtype keeps it.
        ([np.float64(0.1), 2.0], np.float64),
        ([np.float16(0.1), np.float16(2)], np.float16),
        (np.array([0.1, 2.0]), np.float64),
        (array.array("d", [0.1, 2.0]), np.float64),
    ],
)
def test_lists_of_floats_are_as_empty_vectors_are(values: Any, dtype: Any) -> None:
    """So that ranks agree which name something, and which do not."""
    vector = SparseVector([0, 1], values, 3)
    assert vector.dtype == SparseVector.from_dense(values).dtype == dtype
    assert vector.values.tolist() == np.asarray(values, dtype).tolist()


def test_lists_of_rows_and_empty_lists_are_float32() -> None:
    assert SparseVector([0, 1], [[0.5, 1], (2, 3.5)], 2).dtype == np.float32
    assert SparseVector([], [], 2).dtype == SparseVector.empty(2).dtype == np.float32
    assert SparseVector.from_dense([[0.0, 1.0]]).dtype == np.float32


def test_the_engine_counts_as_far_as_vectors_go() -> None:
    with sparsewire.init(rank=0, world_size=1) as comm:
        total = comm.all_reduce(SparseVector([2**48 - 1], [1.0], 2**48), result="sparse")
    assert (total.indices.tolist(), total.length) == ([2**48 - 1], ELEMENTS_MAX)


def test_an_unknown_dtype_is_refused_by_names_of_those_that_are_known() -> None:
    with pytest.raises(TypeError, match="float8 are not supported: use one of float32"):
        SparseVector.empty(3, "float8")


def test_rows() -> None:
    vector = SparseVector(np.array([0, 2]), np.array([[1, 2], [3, 4]], np.int32), 4)
    assert vector.shape == (4, 2)
    assert vector.density == 0.5
    assert vector.to_dense().tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]
    assert repr(vector) == "SparseVector(2 of (4, 2), int32)"


def test_empty() -> None:
    vector = SparseVector.empty(7)
    assert (vector.shape, vector.nnz, vector.dtype) == ((7,), 0, np.float32)
    rows = SparseVector.empty(7, ml_dtypes.bfloat16, 3)
    assert (rows.shape, rows.nnz, rows.dtype) == ((7, 3), 0, ml_dtypes.bfloat16)
    assert not rows.to_dense().any()
    nothing = SparseVector([], [], 0)
    assert (nothing.density, nothing.indices.dtype, nothing.to_dense().shape) == (0, np.int64, (0,))


def test_arrays_with_gaps_are_copied() -> None:
    indices, values = np.arange(0, 20)[::2], np.arange(20.0).reshape(2, 10).T
    vector = SparseVector(indices, values, 20)
    assert vector.indices.flags.c_contiguous
    assert vector.values.flags.c_contiguous
    assert vector.values.tolist() == values.tolist()


def test_order_is_not_its_business() -> None:
    """The collectives check it, so that every rank learns of it."""
    assert SparseVector(np.array([5, -1]), np.ones(2), 3).nnz == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([0.5], [1.0], 2), TypeError, "int32 or int64, not float64"),
        ((np.array([1], np.uint32), [1.0], 2), TypeError, "not uint32"),
        ((np.array([True]), [1.0], 2), TypeError, "not bool"),
        ((np.array([1], ">i8"), [1.0], 2), TypeError, "not >i8"),
        (([[1]], [1.0], 2), ValueError, r"not \(1, 1\) and \(1,\)"),
        ((1, 1.0, 2), ValueError, r"shape \(n,\)"),
        (([0], [[[1.0]]], 2), ValueError, r"\(1, 1, 1\)"),
        (([0, 1], [1.0], 2), ValueError, "2 indices and 1 values"),
        (([], np.empty((0, 0)), 2), ValueError, "must not be empty"),
        (([], [], -1), ValueError, "not be negative, not -1"),
        (
            ([0], np.ones(1, np.complex64), 2),
            TypeError,
            "complex64 are not .* float32, float64, .*",
        ),
        (([0], np.ones(1, ">f4"), 2), TypeError, ">f4 are not supported"),
        (([0], [True], 2), TypeError, "bool are not supported"),
        (([0], ["1"], 2), TypeError, "are not supported"),
        (([0], [1e39], 2), ValueError, "float32, and one is beyond that: pass numpy.asarray"),
        (([], [], 2**48 + 1), ValueError, r"2\*\*48 elements, not 281474976710657 positions of 1"),
        (([], np.empty((0, 3)), 2**47), ValueError, "positions of 3"),
        (([], [], 2.7), TypeError, ""),
        (([], [], "7"), TypeError, ""),
        (([], [], None), TypeError, ""),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        SparseVector(*arguments)
    assert re.search(message, str(refused.value))


@pytest.mark.parametrize("array", [np.float32(1), np.ones((2, 2, 2))])
def test_from_dense_takes_one_or_two_dimensions(array: Any) -> None:
    with pytest.raises(ValueError, match="one or two dimensions"):
        SparseVector.from_dense(array)


def test_from_dense_keeps_what_is_no_number() -> None:
    vector = SparseVector.from_dense(np.array([0.0, np.nan, -0.0, np.inf]))
    assert vector.indices.tolist() == [1, 3]


shapes = st.one_of(st.tuples(st.integers(0, 40)), st.tuples(st.integers(0, 20), st.integers(1, 5)))


@given(shapes, st.sampled_from(DTYPES), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_dense_arrays_round_trip(
    shape: tuple[int, ...], dtype: Any, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    dense = (random.integers(1, 9, shape) * (random.random(shape) < density)).astype(dtype)
    vector = SparseVector.from_dense(dense)
    assert vector.to_dense().tobytes() == dense.tobytes()
    assert (vector.shape, vector.dtype) == (dense.shape, dense.dtype)
    named = dense.reshape(len(dense), -1).any(axis=1) if dense.size else np.zeros(len(dense))
    assert vector.nnz == np.count_nonzero(named)


widths = st.one_of(st.integers(1, 300), st.integers(ROW_MIN, ROW_MAX), st.integers(1, 10**6))


@given(widths)
def test_a_row_is_the_largest_that_fits(width: int) -> None:
    row = row_for(width)
    assert width % row == 0
    fitting = [n for n in range(ROW_MIN, min(width, ROW_MAX) + 1) if width % n == 0]
    assert row == max(fitting, default=1)


@given(st.integers(1, 6000), st.integers(0, 6), st.integers(0, 2**32 - 1), st.sampled_from(DTYPES))
def test_rows_of_any_width_round_trip(width: int, named: int, seed: int, dtype: Any) -> None:
    random = np.random.default_rng(seed)
    indices = np.sort(random.choice(10, named, replace=False))
    values = random.integers(1, 100, (named, width)).astype(dtype)
    cut = read(SparseVector(indices, values, 10))
    assert (cut.width, cut.row * cut.pieces, cut.positions) == (width, width, 10 * cut.pieces)
    assert (np.diff(cut.indices) > 0).all()
    rows, joined = join_rows(cut.indices.astype(np.int64), values.reshape(-1), cut)
    assert rows.tolist() == indices.tolist()
    assert joined.tobytes() == values.tobytes()


def test_pieces_that_did_not_come_are_zeros() -> None:
    cut = read(SparseVector.empty(10, np.int32, 3))
    assert (cut.row, cut.pieces) == (1, 3)
    rows, joined = join_rows(np.array([4, 6, 8]), np.array([1, 2, 3], np.int32), cut)
    assert rows.tolist() == [1, 2]
    assert joined.tolist() == [[0, 1, 0], [2, 0, 3]]


def test_narrow_indices_of_wide_rows_do_not_overflow() -> None:
    vector = SparseVector(np.array([2**30], np.int32), np.ones((1, 5000), np.float32), 2**30 + 1)
    cut = read(vector)
    assert cut.indices.tolist() == [2**31, 2**31 + 1]


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_keep_the_width_of_their_indices(index: type) -> None:
    vector = SparseVector(np.array([1, 7], index), np.ones((2, 3), np.float32), 10)
    cut = read(vector)
    rows, _ = join_rows(cut.indices, vector.values.reshape(-1), cut)
    assert cut.indices.dtype == rows.dtype == index


@pytest.mark.parametrize("wrong", [-1, 10, 2**31 - 1])
def test_an_index_out_of_range_stays_so_where_rows_are_cut(wrong: int) -> None:
    """Times the pieces of a row it would be another's, and count as right."""
    indices = np.array([3, wrong], np.int32)
    cut = read(SparseVector(indices, np.ones((2, 3), np.float32), 10))
    assert cut.indices[:3].tolist() == [9, 10, 11]
    assert ((cut.indices[3:] < 0) | (cut.indices[3:] >= cut.positions)).all()


def test_a_vector_without_rows_is_read_in_place() -> None:
    vector = SparseVector(np.array([1, 2], np.int32), np.ones(2, np.float32), 3)
    cut = read(vector)
    assert cut.indices is vector.indices
    assert cut.values.pointer == vector.values.ctypes.data
    assert form_of(vector) is Form.SPARSE
    assert form_of(vector.values) is Form.DENSE
    assert cut.x is vector
