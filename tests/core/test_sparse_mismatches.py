"""Ranks that call different sparse collectives: a MismatchError on every rank, and a communicator
that goes on."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from sparse_failing import (
    LENGTH,
    OFFENDER,
    OWNER_ALGORITHMS,
    PEER_ALGORITHMS,
    Call,
    collectives_of,
    fail_among_others,
    vector,
)
from support import environment_of, run_ranks

import sparsewire


def mismatches() -> dict[str, tuple[Call, Call]]:
    """What most ranks call, and what the offender calls instead."""

    def reduce(x: Any = None, **options: Any) -> Call:
        return lambda comm: comm.all_reduce(
            vector() if x is None else x, async_op=True, timeout=20, **options
        )

    same = collectives_of(vector())
    short = vector(100)
    made = {
        "length": (reduce(), reduce(vector(LENGTH + 1))),
        "dtype": (reduce(), reduce(vector(dtype=np.float64))),
        "dtype of one size": (reduce(), reduce(vector(dtype=np.int32))),
        "row": (reduce(vector(1600, row=16)), reduce(vector(800, row=32))),
        "wide row": (reduce(vector(160, row=5000)), reduce(vector(320, row=2500))),
        "row or none": (reduce(vector(100, row=3)), reduce(vector(300))),
        "op": (reduce(), reduce(op="avg")),
        "precision": (reduce(), reduce(precision="int8")),
        "precision of results": (reduce(), reduce(precision=(None, "bfloat16"))),
        "form of the result": (reduce(), reduce(result="dense")),
        "array to write to": (reduce(), reduce(out=np.empty(LENGTH, np.float32))),
        "seed": (reduce(precision="int8"), reduce(precision="int8", seed=1)),
        "sparse and dense": (reduce(), reduce(vector().to_dense())),
        "short": (reduce(short), reduce(vector(99))),
        "short and long": (reduce(short), reduce()),
        "short and dense": (reduce(short), reduce(short.to_dense())),
        "short and barrier": (reduce(short), reduce(np.zeros(1, np.int32))),
        "short collectives": (
            lambda comm: comm.all_gather(short, async_op=True),
            lambda comm: comm.broadcast(short, async_op=True),
        ),
        "root of reduce": (same["reduce"], lambda c: c.reduce(vector(), root=0, async_op=True)),
        "root of broadcast": (
            same["broadcast"],
            lambda comm: comm.broadcast(vector(), root=0, async_op=True),
        ),
    }
    for name, call in same.items():
        made[f"{name} and all_reduce"] = call, reduce()
        made[f"all_reduce by stream and {name}"] = reduce(algorithm="stream"), call
        made[f"{name} and dense"] = call, reduce(vector().to_dense())
    for algorithm in [*OWNER_ALGORITHMS[1:], *PEER_ALGORITHMS]:
        made[f"auto and {algorithm}"] = reduce(), reduce(algorithm=algorithm)
        made[f"length by {algorithm}"] = (
            reduce(algorithm=algorithm), reduce(vector(LENGTH + 1), algorithm=algorithm),
        )  # fmt: skip
        made[f"dense and {algorithm}"] = (
            reduce(algorithm=algorithm), reduce(vector().to_dense()),
        )  # fmt: skip
    made["ring and stream"] = reduce(algorithm="ring"), reduce(algorithm="stream")
    return made


def disagree(late: int) -> dict[str, Exception]:
    """Every mismatch in turn; each leaves the communicator as good as new."""
    errors = {}
    with sparsewire.init() as comm:
        for what, (call, odd_call) in mismatches().items():
            if comm.rank == late:
                time.sleep(0.02)
            errors[what] = fail_among_others(comm, odd_call if comm.rank == OFFENDER else call)
    return errors


@pytest.mark.parametrize("late", [0, OFFENDER])
def test_mismatch_is_an_error_on_every_rank(late: int) -> None:
    for errors in run_ranks(3, disagree, late):
        assert list(errors) == list(mismatches())
        for what, error in errors.items():
            assert isinstance(error, sparsewire.MismatchError), (what, error)
            assert re.search(r"ranks? (\d|disagree)", str(error)), (what, error)


def disagree_with_aggregators() -> list[Exception]:
    with sparsewire.init() as comm:
        others = [
            vector(LENGTH + 1), vector(dtype=np.float64), vector().to_dense(), vector(6250, row=16),
        ]  # fmt: skip
        given = [x if comm.rank == OFFENDER else vector() for x in others]
        calls: list[Call] = [lambda comm, x=x: comm.all_reduce(x, async_op=True) for x in given]
        # Of one size, so that the bits of one could pass for the other.
        for dtypes in ((np.float32, np.int32), (np.float64, np.int64)):
            x = vector(dtype=dtypes[comm.rank == OFFENDER])
            calls.append(lambda comm, x=x: comm.broadcast(x, async_op=True))
            calls.append(lambda comm, x=x: comm.all_gather(x, async_op=True))
        root = int(comm.rank == OFFENDER)
        calls.append(lambda comm: comm.reduce(vector(), root=root, async_op=True))
        return [fail_among_others(comm, call) for call in calls]


def test_mismatch_with_dedicated_aggregators() -> None:
    with environment_of("dedicated") as environment:
        for errors in run_ranks(3, disagree_with_aggregators, environment=environment):
            assert {type(error) for error in errors} == {sparsewire.MismatchError}
            # Whose call is compared with whose depends on which came first.
            roots = re.findall(r"reduce with root (\d), a sparse sum", str(errors[-1]))
            assert sorted(roots) == ["0", "1"]
