"""What all_reduce and barrier give on every rank, and which arguments they refuse."""

from __future__ import annotations

import array
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import run_ranks

import sparsewire
from sparsewire import _core

EXPECTED = {
    "sum": lambda parts: np.sum(parts, axis=0),
    "avg": lambda parts: np.sum(parts, axis=0) / len(parts),
    "min": lambda parts: np.min(parts, axis=0),
    "max": lambda parts: np.max(parts, axis=0),
    "product": lambda parts: np.prod(parts, axis=0),
}


def part(rank: int, count: int, dtype: str) -> np.ndarray[Any, Any]:
    """Small whole numbers, mostly zero: exact in every dtype, whatever the order of the sum."""
    random = np.random.default_rng(rank)
    return (random.integers(-3, 4, count) * (random.random(count) < 0.2)).astype(dtype)


def reduce_all(dtypes: list[str], counts: list[int]) -> None:
    with sparsewire.init() as comm:
        for dtype in dtypes:
            for count in counts:
                for op, expected in EXPECTED.items():
                    if op == "avg" and dtype.startswith("int"):
                        continue
                    parts = [part(rank, count, dtype) for rank in range(comm.world_size)]
                    x = parts[comm.rank].copy()
                    assert comm.all_reduce(x, op=op) is x
                    wanted = expected(np.array(parts)).astype(dtype)
                    np.testing.assert_allclose(x, wanted, rtol=1e-3 if dtype == "float16" else 0)


@pytest.mark.parametrize("lanes", [1, 3])
def test_all_operations(lanes: int) -> None:
    run_ranks(
        3,
        reduce_all,
        ["float32", "float64", "float16", "int32", "int64"],
        [0, 1, 1000, 200_000],
        environment={"SPARSEWIRE_LANES": str(lanes)},
    )


def reduce_other_arrays() -> list[list[float]]:
    import ml_dtypes

    with sparsewire.init() as comm:
        half = np.full(5, comm.rank + 1, ml_dtypes.bfloat16)
        buffer = array.array("d", [comm.rank, 1])
        matrix = np.full((2, 3), comm.rank, np.float32)
        return [
            comm.all_reduce(half).astype(float).tolist(),
            comm.all_reduce(buffer).tolist(),
            comm.all_reduce(matrix).ravel().tolist(),
        ]


def test_other_arrays() -> None:
    for result in run_ranks(2, reduce_other_arrays):
        assert result == [[3.0] * 5, [1.0, 2.0], [1.0] * 6]


def reduce_tensor() -> list[float]:
    import torch

    with sparsewire.init() as comm:
        x = torch.full((4,), float(comm.rank + 1))
        out = torch.empty(4)
        assert comm.all_reduce(x, out=out) is out
        assert x.tolist() == [comm.rank + 1.0] * 4
        return out.tolist()


def test_torch_tensors() -> None:
    pytest.importorskip("torch")
    assert run_ranks(2, reduce_tensor) == [[3.0] * 4] * 2


def reduce_into_out() -> None:
    with sparsewire.init() as comm:
        x = part(comm.rank, 100_000, "float32")
        before = x.copy()
        out = np.full_like(x, np.nan)
        assert comm.all_reduce(x, out=out) is out
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(out, part(0, x.size, "f4") + part(1, x.size, "f4"))
        assert comm.all_reduce(x, out=x) is x
        np.testing.assert_array_equal(x, out)


def test_out() -> None:
    run_ranks(2, reduce_into_out)


def reduce_asynchronously() -> None:
    with sparsewire.init() as comm:
        arrays = [np.full(1000 * n, comm.rank + n, np.float32) for n in range(1, 20)]
        works = [comm.all_reduce(x, async_op=True) for x in arrays]
        for n, (x, work) in enumerate(zip(arrays, works, strict=True), 1):
            assert work.wait(30) is x
            assert work.is_completed()
            assert work.exception() is None
            assert (x == 2 * n + 1).all()


def test_async() -> None:
    run_ranks(2, reduce_asynchronously)


def reduce_and_forget() -> None:
    with sparsewire.init() as comm:
        for _ in range(30):
            comm.all_reduce(np.ones(100_000, np.float32), async_op=True)
        assert comm.all_reduce(np.ones(3, np.float32)).tolist() == [2, 2, 2]


def test_forgotten_work_keeps_its_memory() -> None:
    run_ranks(2, reduce_and_forget)


def wait_inside_callbacks() -> list[float]:
    """Each callback waits for a further collective, which needs a thread of its own."""
    with sparsewire.init() as comm:
        results: list[float] = []
        ended = threading.Event()

        def go_on(work: sparsewire.Work) -> None:
            x = work.wait(0)
            results.append(float(x[0]))
            if len(results) == 5:
                ended.set()
                return
            following = comm.all_reduce(x, async_op=True)
            following.add_done_callback(go_on)
            following.wait(30)

        comm.all_reduce(np.ones(4), async_op=True).add_done_callback(go_on)
        assert ended.wait(30)
        return results


def test_callbacks_may_wait_for_collectives() -> None:
    assert run_ranks(2, wait_inside_callbacks) == [[2.0, 4.0, 8.0, 16.0, 32.0]] * 2


def reduce_on_several_communicators() -> None:
    first, second = sparsewire.init(), sparsewire.init()
    x = np.ones(10)
    first.all_reduce(x)
    second.all_reduce(x)
    first.close()
    second.all_reduce(x)
    assert x[0] == 8


def test_several_communicators_and_none_closed() -> None:
    run_ranks(2, reduce_on_several_communicators)


def count() -> dict[str, int]:
    with sparsewire.init() as comm:
        comm.all_reduce(np.zeros(1_000_000, np.float32))
        comm.barrier()
        return comm.stats()


def test_zeros_cost_next_to_nothing() -> None:
    for stats in run_ranks(2, count):
        assert stats["operations"] == 2
        assert 0 < stats["bytes_sent"] < 10_000


@pytest.fixture
def alone() -> Iterator[sparsewire.Communicator]:
    with sparsewire.init(rank=0, world_size=1) as comm:
        yield comm


def test_world_of_one(alone: sparsewire.Communicator) -> None:
    x = np.arange(10.0)
    for op in EXPECTED:
        assert alone.all_reduce(x, op=op).tolist() == list(range(10))
    out = np.zeros(10)
    assert alone.all_reduce(x, out=out) is out
    assert out.tolist() == x.tolist()
    alone.barrier()
    assert (alone.rank, alone.world_size) == (0, 1)


def test_refused_arguments_change_nothing(alone: sparsewire.Communicator) -> None:
    x = np.arange(4.0)
    with pytest.raises(ValueError, match="op 'mean' is not known: use one of sum"):
        alone.all_reduce(x, op="mean")
    with pytest.raises(TypeError, match=r'op "avg" of int32 .* use "sum"'):
        alone.all_reduce(np.zeros(3, np.int32), op="avg")
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        alone.all_reduce(x, timeout=0)
    with pytest.raises(ValueError, match="out must have the dtype and size of x"):
        alone.all_reduce(x, out=np.zeros(3))
    with pytest.raises(ValueError, match="out overlaps x"):
        alone.all_reduce(x[1:], out=x[:-1])
    with pytest.raises(TypeError, match="list is no array"):
        alone.all_reduce([1.0])
    assert x.tolist() == [0, 1, 2, 3]
    assert alone.stats()["operations"] == 0


def test_callback_that_raises_is_logged(
    alone: sparsewire.Communicator, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()
    work = alone.all_reduce(np.zeros(3), async_op=True)
    work.add_done_callback(lambda _: 1 / 0)
    work.add_done_callback(lambda _: called.set())
    assert called.wait(10)
    alone.close()
    assert "ZeroDivisionError" in caplog.text


def meet_in_a_file_store(directory: Path, rank: int) -> None:
    with sparsewire.init(sparsewire.FileStore(directory), rank=rank, world_size=2) as comm:
        comm.barrier()


def test_store_and_rank_as_arguments(tmp_path: Path) -> None:
    other = threading.Thread(target=meet_in_a_file_store, args=(tmp_path, 1), daemon=True)
    other.start()
    meet_in_a_file_store(tmp_path, 0)
    other.join(10)
    assert not other.is_alive()


def meet_over_tcp() -> int:
    with sparsewire.init() as first, sparsewire.init() as second:
        first.barrier()
        return int(second.all_reduce(np.ones(1, np.int64))[0])


def test_meeting_at_master_address(free_port: int) -> None:
    where = {
        "SPARSEWIRE_RENDEZVOUS": "",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port),
    }
    assert run_ranks(3, meet_over_tcp, environment=where) == [3, 3, 3]


def test_raw_memory_is_summed_with_a_time_limit_by_position() -> None:
    x = np.arange(4, dtype=np.float32)
    codes = (_core.DTYPES["float32"], _core.OPS["sum"])
    with sparsewire.init(rank=0, world_size=1) as comm:
        submit = partial(comm.engine.submit, result=lambda: x, memory=x)
        work = submit(x.ctypes.data, x.ctypes.data, 4, *codes, 5.0)
        assert work.wait() is x
        with pytest.raises(ValueError, match="timeout"):
            submit(x.ctypes.data, x.ctypes.data, 4, *codes, -1.0)
