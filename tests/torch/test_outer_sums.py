"""Ways to add up a round's contributions: each equals a plain reference on every member, counts who
contributed, and fails alike where one member cannot encode or decode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import sparsewire
from sparsewire.compress import CompressError, Draws, parse
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector

TIMEOUT_S = 30.0
OPERATORS = ("identity", "span-top-k:4:64", "rounded:2:4+span-top-k:4:64", "threshold:1.5", "sign")
SIZES = (1, 63, 200, 1000)
Outcome = tuple[bytes, int] | str


class Case(NamedTuple):
    """A vector of `elements` on all members, but for those that are late or have what is bad."""

    operator: str
    elements: int
    late: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()

    def vector(self, rank: int) -> Vector | None:
        if rank in self.late:
            return None
        values = np.random.default_rng([rank, self.elements]).standard_normal(self.elements)
        vector: Vector = values.astype(np.float32)
        if rank in self.bad:
            vector[-1] = np.nan
        return vector


def dense(case: Case, rank: int) -> Sums:
    return Dense(case.elements)


def gather(case: Case, rank: int) -> Sums:
    return Gather(parse(case.operator, case.elements), Draws(0, rank))


Make = Callable[[Case, int], Sums]
WAYS: dict[str, Make] = {"dense": dense, "gather": gather}


def cases(ranks: int) -> list[Case]:
    """All operators and sizes, then some members that are late, and in the end one that is bad."""
    whole = [Case(operator, size) for operator in OPERATORS for size in SIZES]
    late = [Case(OPERATORS[1], 200, tuple(range(first, ranks))) for first in range(ranks)]
    return [*whole, *late, Case(OPERATORS[1], 200, bad=(ranks - 1,)), Case(OPERATORS[1], 200)]


def on_members(ranks: int, task: Callable[[sparsewire.Communicator], Any]) -> list[Any]:
    """What `task` returns on each member; they are threads of this process."""

    def member(rank: int) -> Any:
        store = sparsewire.FileStore(directory)
        with sparsewire.init(store, rank=rank, world_size=ranks, timeout=TIMEOUT_S) as communicator:
            return task(communicator)

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(member, range(ranks)))


def outcomes(communicator: sparsewire.Communicator, make: Make) -> list[Outcome]:
    """Of each case: the bits of the sum and the contributors, or the error."""
    rank = communicator.rank
    return [
        outcome(make(case, rank), communicator, case) for case in cases(communicator.world_size)
    ]


def outcome(way: Sums, communicator: sparsewire.Communicator, case: Case) -> Outcome:
    vector = case.vector(communicator.rank)
    try:
        added = way.run(communicator, vector, TIMEOUT_S)
    except CompressError as error:
        way.abort()
        return f"CompressError: {error}"
    way.commit()
    check_taken_off(way, added, vector)
    return added.total.tobytes(), added.contributors


def check_taken_off(way: Sums, added: Added, vector: Vector | None) -> None:
    """Nothing is sent of nothing; of a vector, what is left is no longer than before."""
    if vector is None:
        assert added.sent is None
        return
    left = vector.copy()
    way.take_off(added.sent, left)
    assert np.linalg.norm(left) <= np.linalg.norm(vector) * (1 + 1e-6)


def reference(way: str, case: Case, ranks: int) -> Vector:
    """The sum in rank order of what each contributor's message stands for."""
    total = np.zeros(case.elements, np.float32)
    for rank in range(ranks):
        vector = case.vector(rank)
        if vector is not None:
            total = total + decoded(way, case, vector)
    return total


def decoded(way: str, case: Case, vector: Vector) -> Vector:
    if way == "dense":
        return vector
    return parse(case.operator, case.elements).compress(vector, Draws(0))


@pytest.mark.parametrize("ranks", range(1, 6))
@pytest.mark.parametrize("way", WAYS)
def test_sums_equal_the_reference_on_every_member(way: str, ranks: int) -> None:
    every = on_members(ranks, lambda communicator: outcomes(communicator, WAYS[way]))
    for case, *found in zip(cases(ranks), *every, strict=True):
        if case.bad:
            assert all("CompressError" in str(each) for each in found), (case, found)
            continue
        assert len(set(found)) == 1, case
        bits, contributors = found[0]
        total: Any = np.frombuffer(bits, np.float32)
        np.testing.assert_array_equal(total, reference(way, case, ranks), str(case))
        assert contributors == ranks - len(case.late)
