"""all_gather, reduce_scatter, reduce and broadcast of sparse vectors, and many collectives in
flight: each against what the same vectors give in plain NumPy."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest
from rank_order import DTYPES, Array, bits, reduce_in_rank_order
from support import environment_of, run_ranks

import sparsewire
from sparsewire import SparseVector

RANKS = [1, 2, 3, 5]
# Shorter than the ranks are many, not divisible by them, around a chunk, of several chunks.
SHAPES = [
    (0, None), (1, None), (2, None), (101, None), (65_537, None), (300_001, None),
    (7, 3), (101, 16), (997, 64), (11, 5000),
]  # fmt: skip
ALGORITHMS = ["auto", "stream", "ssar_recursive_double", "ring", "allgather"]


def make(rank: int, length: int, row: int | None = None, dtype: str = "float32") -> SparseVector:
    """About a tenth of the positions; rank 1 names none, rank 2 only some in the first half."""
    random = np.random.default_rng([rank, length])
    named = random.random(length) < (0.1 if rank != 1 else 0.0)
    if rank == 2:
        named[length // 2 :] = False
    indices = np.flatnonzero(named)
    shape = (len(indices),) if row is None else (len(indices), row)
    values = random.integers(1, 100, shape) * random.choice([-1, 1], shape)
    return SparseVector(indices, values.astype(DTYPES[dtype]), length)


def assert_same(got: SparseVector, wanted: SparseVector) -> None:
    assert got.length == wanted.length
    assert got.indices.tolist() == wanted.indices.tolist()
    assert got.dtype == wanted.dtype
    assert bits(got.values) == bits(wanted.values)


def assert_dense(got: SparseVector, wanted: Array) -> None:
    assert isinstance(got, SparseVector)
    assert (np.diff(got.indices) > 0).all()
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    assert bits(got.to_dense()) == bits(wanted)


def total_of(comm: sparsewire.Communicator, op: str, *form: Any) -> Array:
    parts = [make(rank, *form).to_dense() for rank in range(comm.world_size)]
    return reduce_in_rank_order(parts, op)


def gather(comm: sparsewire.Communicator, *form: Any) -> None:
    gathered = comm.all_gather(make(comm.rank, *form), timeout=30)
    assert len(gathered) == comm.world_size
    for rank, vector in enumerate(gathered):
        assert_same(vector, make(rank, *form))


def scatter(comm: sparsewire.Communicator, *form: Any) -> None:
    for op in ops_of(*form):
        part = comm.reduce_scatter(make(comm.rank, *form), op, timeout=30)
        begin, end = (place * form[0] // comm.world_size for place in (comm.rank, comm.rank + 1))
        assert_dense(part, total_of(comm, op, *form)[begin:end])


def reduce(comm: sparsewire.Communicator, *form: Any) -> None:
    for root in {0, comm.world_size - 1}:
        for op in ops_of(*form):
            result = comm.reduce(make(comm.rank, *form), op, root, timeout=30)
            if comm.rank == root:
                assert_dense(result, total_of(comm, op, *form))
            else:
                assert result is None


def broadcast(comm: sparsewire.Communicator, *form: Any) -> None:
    for root in range(comm.world_size):
        mine = make(comm.rank, *form)
        x = mine if comm.rank == root else SparseVector.empty(form[0], mine.dtype, form[1])
        assert_same(comm.broadcast(x, root, timeout=30), make(root, *form))


def broadcast_over_what_others_hold(comm: sparsewire.Communicator, *form: Any) -> None:
    root = comm.world_size - 1
    assert_same(comm.broadcast(make(comm.rank, *form), root=root), make(root, *form))


def ops_of(length: int, row: int | None, dtype: str) -> list[str]:
    return ["sum"] if dtype.startswith("int") else ["sum", "avg"]


COLLECTIVES = [gather, scatter, reduce, broadcast, broadcast_over_what_others_hold]


def try_shapes() -> None:
    with sparsewire.init() as comm:
        for number, (length, row) in enumerate(SHAPES):
            for collective in COLLECTIVES:
                collective(comm, length, row, [*DTYPES][number % len(DTYPES)])


@pytest.mark.parametrize("world_size", RANKS)
def test_shapes(world_size: int) -> None:
    run_ranks(world_size, try_shapes)


@pytest.mark.parametrize("world_size", [2, 3])
def test_shapes_over_dedicated_aggregators(world_size: int) -> None:
    with environment_of("dedicated") as environment:
        run_ranks(world_size, try_shapes, environment=environment)


def try_dtypes() -> None:
    with sparsewire.init() as comm:
        for dtype in DTYPES:
            for row in (None, 16):
                for collective in COLLECTIVES:
                    collective(comm, 1001, row, dtype)


def test_dtypes() -> None:
    run_ranks(3, try_dtypes, environment={"SPARSEWIRE_LANES": "2"})


def gather_whatever_was_named() -> list[Any]:
    """Zeros that were named stay named; positions that hold nothing are not made up."""
    with sparsewire.init() as comm:
        values = np.float32([0.0, -0.0, 1.0]) if comm.rank == 0 else np.zeros(3, np.float32)
        x = SparseVector(np.array([2, 3, 70_000], np.int32), values, 70_001)
        gathered = comm.all_gather(x)
        assert [vector.indices.dtype for vector in gathered] == [np.int32] * 2
        return [(vector.indices.tolist(), bits(vector.values)) for vector in gathered]


def test_all_gather_keeps_named_zeros() -> None:
    first, second = run_ranks(2, gather_whatever_was_named)
    assert first == second
    indices = [2, 3, 70_000]
    assert first == [
        (indices, bits(np.float32([0.0, -0.0, 1.0]))),
        (indices, bits(np.zeros(3, np.float32))),
    ]


def mixed(comm: sparsewire.Communicator) -> list[tuple[str, Any, SparseVector]]:
    """Twenty works: dense ones, sparse ones by every algorithm, and other collectives between."""
    works: list[tuple[str, Any, SparseVector]] = []
    for number in range(20):
        length = [37, 5000, 140_000][number % 3]
        x = make(comm.rank, length, 16 if number % 5 == 0 else None)
        if number % 4 == 0:
            works.append(("dense", comm.all_reduce(x.to_dense(), async_op=True), x))
        elif number % 7 == 0:
            works.append(("gather", comm.all_gather(x, async_op=True), x))
        elif number % 9 == 0:
            works.append(("scatter", comm.reduce_scatter(x, async_op=True), x))
        else:
            algorithm = ALGORITHMS[number % len(ALGORITHMS)]
            work = comm.all_reduce(x, async_op=True, algorithm=algorithm, result="dense")
            works.append(("sparse", work, x))
    return works


def reduce_many(in_reverse: bool) -> None:
    with sparsewire.init() as comm:
        works = mixed(comm)
        for kind, work, x in reversed(works) if in_reverse else works:
            result = work.wait(40)
            assert work.is_completed()
            assert work.exception() is None
            check(comm, kind, result, x)
            assert work.wait(0.001) is result


def check(comm: sparsewire.Communicator, kind: str, result: Any, x: SparseVector) -> None:
    row = x.values.shape[1] if x.values.ndim == 2 else None
    if kind == "gather":
        for rank, vector in enumerate(result):
            assert_same(vector, make(rank, x.length, row))
        return
    total = total_of(comm, "sum", x.length, row)
    if kind == "scatter":
        begin, end = (place * x.length // comm.world_size for place in (comm.rank, comm.rank + 1))
        return assert_dense(result, total[begin:end])
    assert bits(result) == bits(total)


@pytest.mark.matrix
@pytest.mark.parametrize("in_reverse", [False, True])
@pytest.mark.parametrize("world_size", [2, 4])
def test_many_in_flight(world_size: int, in_reverse: bool) -> None:
    run_ranks(world_size, reduce_many, in_reverse, environment={"SPARSEWIRE_LANES": "2"})


def end_in_issue_order() -> None:
    with sparsewire.init() as comm:
        works = [work for _, work, _ in mixed(comm)]
        for number in (3, 11, 12, 19):
            works[number].wait(30)
            assert all(work.is_completed() for work in works[: number + 1])


def test_works_end_in_issue_order() -> None:
    run_ranks(3, end_in_issue_order)


def call_back() -> list[int]:
    """The numbers of all callbacks, even of works that nobody holds."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    with sparsewire.init() as comm:
        for number, (_, work, _) in enumerate(mixed(comm)):
            work.add_done_callback(lambda _, number=number: ended.put(number))
        del work
        return sorted(ended.get(timeout=30) for _ in range(20))


def test_callbacks() -> None:
    assert run_ranks(3, call_back) == [list(range(20))] * 3


def chain() -> float:
    with sparsewire.init() as comm:
        sums: list[float] = []
        done = threading.Event()
        x = SparseVector(np.array([3]), np.ones(1), 10)

        def again(work: sparsewire.Work) -> None:
            sums.append(float(comm.all_reduce(work.wait()).values[0]))
            done.set()

        comm.all_reduce(x, async_op=True, result="sparse").add_done_callback(again)
        assert done.wait(30)
        return sums[0]


def test_callback_may_start_another() -> None:
    assert run_ranks(3, chain) == [9.0] * 3


def hold_nothing() -> bytes:
    """The caller keeps neither the vectors nor the works; memory is taken again in between."""
    with sparsewire.init() as comm:
        for number in range(30):
            comm.all_reduce(make(comm.rank, 50_000 + number), async_op=True)
        return bits(comm.all_reduce(make(comm.rank, 999), result="dense"))


def test_abandoned_works_keep_their_memory() -> None:
    parts = [make(rank, 999).to_dense() for rank in range(3)]
    assert run_ranks(3, hold_nothing) == [bits(reduce_in_rank_order(parts, "sum"))] * 3


def leave_input_alone() -> None:
    with sparsewire.init() as comm:
        x = make(comm.rank, 10_000)
        indices, values = x.indices.copy(), x.values.copy()
        x.indices.flags.writeable = x.values.flags.writeable = False
        for algorithm in ALGORITHMS:
            comm.all_reduce(x, "avg", algorithm=algorithm)
        comm.reduce(x), comm.reduce_scatter(x), comm.all_gather(x), comm.broadcast(x)
        assert bits(x.indices) + bits(x.values) == bits(indices) + bits(values)


def test_inputs_stay_as_they_are() -> None:
    run_ranks(3, leave_input_alone)


def name_far_positions() -> list[int]:
    """Rank 0 has narrow indices, and rank 1 names what does not fit into them."""
    with sparsewire.init() as comm:
        length = 2**32 + 100
        indices = np.array([3], np.int32) if comm.rank == 0 else np.array([3, 2**32 + 7])
        x = SparseVector(indices, np.ones(len(indices), np.float32), length)
        total = comm.all_reduce(x, result="sparse", timeout=30)
        assert total.values.tolist() == [2, 1]
        return total.indices.tolist()


def test_far_positions_of_others_fit() -> None:
    assert run_ranks(2, name_far_positions) == [[3, 2**32 + 7]] * 2
