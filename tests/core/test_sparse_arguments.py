"""Wrong arguments of sparse collectives: refused on the spot, before any rank hears of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sparse_failing import PEER_ALGORITHMS, Call, vector
from support import run_ranks, serving

import sparsewire
from sparsewire import Communicator, SparseVector


def over(memory: np.ndarray[Any, Any]) -> SparseVector:
    return SparseVector(np.array([1, 2, 5]), memory[:3], len(memory))


MEMORY = np.ones(9, np.float32)
Kind = type[Exception] | tuple[type[Exception], ...]
WRONG: dict[str, tuple[Kind, str, Call]] = {
    "None to broadcast": (TypeError, "NoneType is no array", lambda c: c.broadcast(None)),
    "dense by an algorithm": (
        ValueError, "'ring' is for sparse", lambda c: c.all_reduce(np.ones(3), algorithm="ring"),
    ),
    "dense with a form": (
        ValueError, "result", lambda c: c.all_reduce(np.ones(3), result="sparse"),
    ),
    "algorithm": (
        ValueError, "'bruck' is not known.*ring",
        lambda c: c.all_reduce(vector(), algorithm="bruck"),
    ),
    "result": (
        ValueError, "'csr' is not known.*dense", lambda c: c.all_reduce(vector(), result="csr"),
    ),
    "result against out": (
        ValueError, "out", lambda c: c.all_reduce(vector(9), result="sparse", out=np.ones(9, "f4")),
    ),
    "op": (ValueError, "'max' is not for sparse", lambda c: c.all_reduce(vector(), "max")),
    "avg of integers": (
        TypeError, "lose fractions", lambda c: c.all_reduce(vector(dtype=np.int64), "avg"),
    ),
    "root": (ValueError, "root must be .*from 0 to 0", lambda c: c.reduce(vector(), root=1)),
    "negative root": (ValueError, "root", lambda c: c.broadcast(vector(), root=-1)),
    "broken root": (TypeError, "root", lambda c: c.broadcast(vector(), root=0.0)),
    "seed": (ValueError, "seed must be", lambda c: c.all_reduce(vector(), seed=-1)),
    "large seed": (ValueError, "seed must be", lambda c: c.all_reduce(vector(), seed=2**32)),
    "broken seed": (TypeError, "seed", lambda c: c.all_reduce(vector(), seed=0.5)),
    "dense seed": (ValueError, "seed must be", lambda c: c.all_reduce(np.ones(3, "f4"), seed=-1)),
    "precision": (
        ValueError, "'int3' is not known.*int4", lambda c: c.all_reduce(vector(), precision="int3"),
    ),
    "one of a pair": (
        ValueError, "a pair", lambda c: c.all_reduce(vector(), precision=("int8",)),
    ),
    "three of a pair": (
        ValueError, "a pair", lambda c: c.all_reduce(vector(), precision=["int8"] * 3),
    ),
    "precision as a number": (
        (TypeError, ValueError), "precision", lambda c: c.all_reduce(vector(), precision=8),
    ),
    "precision of float64": (
        TypeError, "float32 alone", lambda c: c.all_reduce(vector(dtype="f8"), precision="int8"),
    ),
    "precision of a dense max": (
        ValueError, 'not "max"', lambda c: c.all_reduce(np.ones(3, "f4"), "max", precision="int8"),
    ),
    "dtype": (TypeError, "complex64", lambda c: c.all_reduce(vector(dtype=np.complex64))),
    "byte order": (TypeError, "dtype >f4", lambda c: c.all_reduce(vector(dtype=">f4"))),
    "timeout": (ValueError, "timeout must be", lambda c: c.all_reduce(vector(), timeout=0)),
    "out of another size": (
        ValueError, "out must be a dense array of 9",
        lambda c: c.all_reduce(vector(9), out=np.ones(8)),
    ),
    "out of another dtype": (
        ValueError, "9 elements of float32, not 9 of float64",
        lambda c: c.all_reduce(vector(9), out=np.ones(9)),
    ),
    "out that is read-only": (
        ValueError, "read-only",
        lambda c: c.all_reduce(vector(9), out=np.frombuffer(bytes(36), "f4")),
    ),
    "sparse out": (TypeError, "SparseVector", lambda c: c.all_reduce(vector(9), out=vector(9))),
    "out that overlaps the values": (
        ValueError, "overlaps", lambda c: c.all_reduce(over(MEMORY), out=MEMORY),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Iterator[Communicator]:
    with sparsewire.init(rank=0, world_size=1) as comm:
        yield comm


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_at_once(alone: Communicator, what: str) -> None:
    kind, message, call = WRONG[what]
    before = alone.stats()["operations"]
    with pytest.raises(kind, match=message):
        call(alone)
    assert alone.stats()["operations"] == before  # The ranks are still in step.


def ask_for_what_aggregators_cannot_do() -> list[str]:
    with sparsewire.init() as comm:
        calls: list[Call] = [
            lambda comm, algorithm=algorithm: comm.all_reduce(vector(), algorithm=algorithm)
            for algorithm in PEER_ALGORITHMS
        ]
        texts = []
        for call in calls:
            with pytest.raises(ValueError, match="dedicated aggregators there are none") as refused:
                call(comm)
            texts.append(str(refused.value))
        assert comm.all_reduce(np.ones(1)).tolist() == [comm.world_size]
        return texts


def test_dedicated_aggregators_cannot_connect_workers() -> None:
    with serving() as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        for texts in run_ranks(2, ask_for_what_aggregators_cannot_do, environment=environment):
            for name, text in zip(PEER_ALGORITHMS, texts, strict=True):
                assert name in text
