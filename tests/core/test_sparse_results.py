"""The memory of sparse results: nobody else's while somebody holds it, used again afterwards."""

from __future__ import annotations

import gc
import itertools
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from support import run_ranks

import sparsewire
from sparsewire import SparseVector
from sparsewire.collectives import sparse as sparse_collectives

# Large enough for memory that is used again.
LENGTH = 600_000
NAMED = 300_000


def make(rank: int, call: int) -> SparseVector:
    random = np.random.default_rng([rank, call])
    indices = np.sort(random.permutation(LENGTH)[:NAMED])
    return SparseVector(indices, random.random(NAMED, dtype=np.float32), LENGTH)


def as_tensor(x: SparseVector) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        torch.from_numpy(x.indices)[None],
        torch.from_numpy(x.values),
        (x.length,),
        is_coalesced=True,
        check_invariants=False,
    )


def spans_of(result: SparseVector | torch.Tensor) -> list[tuple[int, int]]:
    if isinstance(result, SparseVector):
        arrays = (result.indices, result.values)
        return [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]
    tensors = (result._indices(), result._values())
    return [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]


def reduce(comm: sparsewire.Communicator, call: int, kind: str) -> SparseVector | torch.Tensor:
    x = make(comm.rank, call)
    given = x if kind == "numpy" else as_tensor(x)
    return comm.all_reduce(given, result="sparse", timeout=50)


def dense_of(result: SparseVector | torch.Tensor) -> bytes:
    dense = result.to_dense()
    return (dense if isinstance(dense, np.ndarray) else dense.numpy()).tobytes()


def hold_all(kind: str) -> None:
    with sparsewire.init() as comm:
        held = [reduce(comm, call, kind) for call in range(4)]
        spans = sorted(span for result in held for span in spans_of(result))
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert end <= begin
        expected = [dense_of(result) for result in held]
        # Letting go of one must not touch the others, nor may what comes in its place.
        del held[1], expected[1]
        gc.collect()
        for call in range(10, 14):
            reduce(comm, call, kind)
        assert [dense_of(result) for result in held] == expected


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_results_that_are_held_share_no_memory(kind: str) -> None:
    run_ranks(2, hold_all, kind)


def keep_a_view() -> None:
    with sparsewire.init() as comm:
        result = comm.all_reduce(as_tensor(make(comm.rank, 0)), result="sparse", timeout=50)
        view = result._values()[1000:2000]
        expected = view.clone()
        del result
        gc.collect()
        for call in range(1, 4):
            comm.all_reduce(as_tensor(make(comm.rank, call)), result="sparse", timeout=50)
        assert torch.equal(view, expected)


def test_a_view_keeps_the_memory_of_its_result() -> None:
    run_ranks(2, keep_a_view)


def let_go() -> None:
    with sparsewire.init() as comm:
        seen = []
        for call in range(4):
            result = comm.all_reduce(make(comm.rank, call), result="sparse", timeout=50)
            seen.append(spans_of(result)[0][0])
            del result
            gc.collect()
        assert len(set(seen)) < len(seen)


def test_memory_that_was_let_go_of_is_used_again() -> None:
    run_ranks(2, let_go)


def outlive() -> None:
    comm = sparsewire.init()
    results = [reduce(comm, call, "torch") for call in range(2)]
    expected = [dense_of(result) for result in results]
    comm.close()
    del comm
    gc.collect()
    assert [dense_of(result) for result in results] == expected


def test_results_outlive_their_communicator() -> None:
    run_ranks(2, outlive)


def test_result_outlives_a_delivery_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    with sparsewire.init(rank=0, world_size=1) as comm:
        x = make(0, 0)
        work = comm.all_reduce(x, result="sparse", async_op=True)
        with monkeypatch.context() as patch:
            patch.setattr(sparse_collectives, "join_rows", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                work.wait(50)
        assert dense_of(work.wait(50)) == dense_of(x)


def test_indices_are_as_wide_as_those_that_were_given() -> None:
    rows, length = np.array([5, 299_999_999], np.int32), 300_000_000
    with sparsewire.init(rank=0, world_size=1) as comm:
        x = SparseVector(rows, np.ones((2, 8), np.float32), length)
        result = comm.all_reduce(x, result="sparse", timeout=50)
        assert result.indices.dtype == np.int32
        assert result.indices.tolist() == rows.tolist()
        assert result.values.tolist() == x.values.tolist()


def gather_short_rows(width: int) -> tuple[int, bool]:
    """Bytes that this rank sends of 2000 rows in 200,000, and whether the sum is right."""
    length, count = 200_000, 2000
    rows = [np.sort(np.random.default_rng(r).choice(length, count, False)) for r in range(2)]
    with sparsewire.init() as comm:
        x = SparseVector(rows[comm.rank], np.ones((count, width), np.float32), length)
        comm.barrier()
        comm.engine.start_counting()
        result = comm.all_reduce(x, algorithm="allgather")
        sent = comm.stats()["bytes_sent"]
    expected = np.zeros((length, width), np.float32)
    for each in rows:
        expected[each] += 1
    return sent, bool((result.to_dense() == expected).all())


@pytest.mark.parametrize("width", [2, 10, 15])
def test_short_rows_take_one_index_each(width: int) -> None:
    for sent, is_right in run_ranks(2, gather_short_rows, width):
        assert is_right
        # Four bytes for each chunk of the part, and what messages and joins take.
        assert sent < 2000 * (4 * width + 2) + 4 * 200_000 * width // 60_000 + 1000
