"""broadcast, all_gather, reduce, reduce_scatter of dense arrays, and barrier: against plain NumPy,
bit for bit, over all ways that ranks can be connected."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
import torch
from rank_order import DTYPES, Array, bits, reduce_in_rank_order
from support import environment_of, run_ranks

import sparsewire

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3,), (7, 5), (4097,), (70_001,)]
TRANSPORTS = ["colocated", "colocated-3-lanes", "dedicated", "datagrams", "datagrams-lossy"]


def make(rank: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers with -0, and of floats NaN and infinities, whose bits must stay."""
    random = np.random.default_rng([rank, *shape])
    x = random.integers(-100, 100, shape).astype(DTYPES[dtype])
    if x.size > 3 and not dtype.startswith("int"):
        x.reshape(-1)[:4] = [-0.0, np.nan, np.inf, 0.0]
    return x


def finite(rank: int, shape: tuple[int, ...], dtype: str) -> Array:
    return np.random.default_rng([rank, *shape]).integers(-100, 100, shape).astype(DTYPES[dtype])


def moved(comm: sparsewire.Communicator, shape: tuple[int, ...], dtype: str) -> None:
    root = comm.world_size - 1
    mine = make(comm.rank, shape, dtype)
    x = mine.copy()
    assert comm.broadcast(x, root=root, timeout=20) is x
    assert bits(x) == bits(make(root, shape, dtype))
    gathered = comm.all_gather(mine, timeout=20)
    assert [bits(each) for each in gathered] == [
        bits(make(rank, shape, dtype)) for rank in range(comm.world_size)
    ]
    assert all((each.shape, each.dtype) == (shape, mine.dtype) for each in gathered)


def combined(comm: sparsewire.Communicator, shape: tuple[int, ...], dtype: str) -> None:
    parts = [finite(rank, shape, dtype) for rank in range(comm.world_size)]
    x = parts[comm.rank].copy()
    for op in ("sum", "max"):
        wanted = reduce_in_rank_order(parts, op)
        got = comm.reduce(x, op, root=0, timeout=20)
        assert (got is None) == (comm.rank != 0)
        if got is not None:
            assert (got.shape, bits(got)) == (shape, bits(wanted))
        part = comm.reduce_scatter(x, op, timeout=20)
        begin, end = (r * x.size // comm.world_size for r in (comm.rank, comm.rank + 1))
        assert bits(part) == bits(wanted.reshape(-1)[begin:end])
    assert bits(x) == bits(parts[comm.rank]), "the input stays"


def all_of(dtypes: list[str]) -> None:
    with sparsewire.init(timeout=30) as comm:
        for dtype in dtypes:
            for shape in SHAPES:
                moved(comm, shape, dtype)
                combined(comm, shape, dtype)
        comm.barrier(timeout=20)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_dense_collectives(ranks: int, transport: str) -> None:
    with environment_of(transport) as environment:
        run_ranks(ranks, all_of, sorted(DTYPES), environment=environment)


def with_tensors() -> None:
    with sparsewire.init(timeout=30) as comm:
        x = torch.full((5, 3), float(comm.rank), dtype=torch.bfloat16)
        gathered = comm.all_gather(x)
        assert [each.tolist() for each in gathered] == [[[float(r)] * 3] * 5 for r in range(2)]
        assert all(isinstance(each, torch.Tensor) and each.dtype == x.dtype for each in gathered)
        assert comm.broadcast(x, root=1) is x
        assert x.unique().tolist() == [1.0]
        part = comm.reduce_scatter(torch.ones(5))
        assert part.tolist() == [2.0] * (2 if comm.rank == 0 else 3)
        # A part may have no elements.
        assert comm.reduce_scatter(torch.ones(1)).tolist() == [2.0][: comm.rank]
        assert [each.shape for each in comm.all_gather(torch.empty(0, 3))] == [(0, 3)] * 2
        handle = comm.reduce(torch.arange(4), root=1, async_op=True)
        total = handle.wait()
        assert total is None if comm.rank == 0 else total.tolist() == [0, 2, 4, 6]


def test_tensors_give_tensors() -> None:
    run_ranks(2, with_tensors)


def with_misaligned() -> None:
    """Two bytes beside a word, and a number of bytes that is no number of words."""
    with sparsewire.init(timeout=30) as comm:
        x = np.full(8, comm.rank, np.float16)[1:6]
        comm.broadcast(x, root=1)
        assert x.tolist() == [1.0] * 5


def test_what_is_no_whole_number_of_words() -> None:
    run_ranks(2, with_misaligned)


def crossed(mine: list[str]) -> list[str]:
    """What each call of a rank came to, and a sum behind."""
    calls: dict[str, Any] = {
        "barrier": lambda c: c.barrier(timeout=20),
        "sum": lambda c: c.all_reduce(np.ones(1, np.int32), timeout=20),
        "broadcast": lambda c: c.broadcast(np.ones(1, np.int32), timeout=20),
        "broadcast 1": lambda c: c.broadcast(np.ones(1, np.int32), root=1, timeout=20),
        "broadcast of floats": lambda c: c.broadcast(np.ones(1, np.float32), timeout=20),
        "broadcast of halves": lambda c: c.broadcast(np.ones(2, np.float16), timeout=20),
        "all_gather": lambda c: c.all_gather(np.ones(1, np.int32), timeout=20),
        "reduce": lambda c: c.reduce(np.ones(1, np.int32), timeout=20),
        "reduce_scatter": lambda c: c.reduce_scatter(np.ones(1, np.int32), timeout=20),
    }
    with sparsewire.init(timeout=30) as comm:
        try:
            calls[mine[comm.rank]](comm)
        except sparsewire.MismatchError as error:
            text = str(error)
        assert comm.all_reduce(np.ones(3)).tolist() == [2.0] * 3
        return [text]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("barrier", "sum", "called barrier, rank 1 called sum of 1 int32, in barrier"),
        ("barrier", "broadcast", "called barrier, rank 1 called broadcast with root 0 of 1 int32"),
        ("broadcast", "broadcast 1", "with root 0 of 1 int32, rank 1 called broadcast with root 1"),
        ("broadcast", "broadcast of floats", "of 1 int32, rank 1 called .* of 1 float32"),
        ("broadcast", "broadcast of halves", "of 1 int32, rank 1 called .* of 2 float16"),
        ("broadcast", "all_gather", "called all_gather of 1 int32"),
        ("reduce", "sum", "called reduce with root 0 by sum of 1 int32"),
        ("reduce", "reduce_scatter", "called reduce_scatter by sum of 1 int32"),
    ],
)
def test_a_collective_matches_its_like_alone(first: str, second: str, words: str) -> None:
    for (text,) in run_ranks(2, crossed, [first, second])[:1]:
        assert re.search(words, text), text


def in_two_threads() -> str:
    """Each thread's calls are alike on all ranks; rank 1 lets them call in the other order."""
    with sparsewire.init(timeout=30) as comm:
        turns = [threading.Event(), threading.Event()]
        failures: list[str] = []

        def call(number: int) -> None:
            turns[number].wait(20)
            try:
                comm.all_reduce(np.ones(100), timeout=20)
            except sparsewire.MismatchError as error:
                failures.append(str(error))

        threads = [threading.Thread(target=call, args=(n,), name=f"caller {n}") for n in (0, 1)]
        for thread in threads:
            thread.start()
        for number in (0, 1) if comm.rank == 0 else (1, 0):
            turns[number].set()
            threads[number].join()
        return failures[0] if failures else ""


def test_threads_whose_calls_cross_are_told_in_debug_mode() -> None:
    texts = run_ranks(2, in_two_threads, environment={"SPARSEWIRE_DEBUG": "1"})
    for rank, text in enumerate(texts):
        assert "from site" in text
        assert f"thread caller {rank}" in text
        assert "test_dense_collectives.py" in text


def test_without_debug_mode_they_are_not() -> None:
    assert run_ranks(2, in_two_threads) == ["", ""]


def refused_on_others() -> None:
    with sparsewire.init(timeout=30) as comm:
        x = np.full(3, comm.rank + 1.0)
        with pytest.raises(ValueError, match="timeout must be"):
            comm.broadcast(x, root=0, timeout=-1)
        assert x.tolist() == [comm.rank + 1.0] * 3


def test_a_broadcast_that_is_refused_leaves_the_array() -> None:
    run_ranks(2, refused_on_others)


def refused() -> None:
    with sparsewire.init(timeout=30) as comm:
        fixed = np.ones(3)
        fixed.flags.writeable = False
        for error, words, call in (
            (ValueError, "read-only", lambda: comm.broadcast(fixed)),
            (ValueError, "root must be from 0 to 0", lambda: comm.broadcast(np.ones(3), root=1)),
            (ValueError, "root must be from 0 to 0", lambda: comm.reduce(np.ones(3), root=-1)),
            (ValueError, "precision", lambda: comm.broadcast(np.ones(3), precision="int8")),
            (ValueError, "op 'and'", lambda: comm.reduce(np.ones(3), "and")),
            (TypeError, "dtype complex128", lambda: comm.all_gather(np.ones(3, complex))),
            (TypeError, "no array", lambda: comm.broadcast("weights")),
        ):
            with pytest.raises(error, match=words):
                call()
        assert comm.all_reduce(np.ones(2)).tolist() == [1.0, 1.0]


def test_what_cannot_be_sent_is_refused() -> None:
    run_ranks(1, refused)
