"""Ways to add up a round's contributions: each equals a plain reference on every member, counts who
contributed, and fails alike where one member cannot encode or decode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsewire
from sparsewire import Communicator, SparseVector
from sparsewire.compress import CompressError, Draws, Identity, parse
from sparsewire.errors import MismatchError
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.engine import EngineSum
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.pairs import Pairs, partners
from sparsewire.torch.outer.sums.parcel import ROW, Kind, Parcel, unwrap, wrap
from sparsewire.torch.outer.sums.parts import parts_of
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector

TIMEOUT_S = 30.0
CHUNK = 64
SPARSE = "span-top-k:4:64"
OPERATORS = ("identity", SPARSE, f"rounded:2:4+{SPARSE}", "threshold:1.5", "sign:64")
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
        vector = normal(rank, self.elements)
        if rank in self.bad:
            vector[-1] = np.nan
        return vector


def normal(seed: int, elements: int) -> Vector:
    return np.random.default_rng([seed, elements]).standard_normal(elements, np.float32)


def dense(case: Case, rank: int) -> Sums:
    return Dense(case.elements)


def gather(case: Case, rank: int) -> Sums:
    return Gather(parse(case.operator, case.elements), Draws(0, rank))


def owned(case: Case, rank: int) -> Sums:
    return Owned(case.elements, case.operator, Draws(0, rank), chunk=CHUNK)


def owned_lossy(case: Case, rank: int) -> Sums:
    return Owned(case.elements, case.operator, Draws(0, rank), case.operator, CHUNK)


def engine(case: Case, rank: int) -> Sums:
    # The stream adds in rank order.
    return EngineSum(parse(case.operator, case.elements), Draws(0, rank), "stream")


Make = Callable[[Case, int], Sums]
WAYS: dict[str, Make] = {
    "dense": dense,
    "gather": gather,
    "owned": owned,
    "owned-lossy": owned_lossy,
    "engine": engine,
}


def cases(way: str, ranks: int) -> list[Case]:
    """All operators and sizes, then some members that are late, and in the end one that is bad."""
    is_engine = way == "engine"  # It takes several marked elements or blocks.
    operators = ("block-top-k:1:16", SPARSE) if is_engine else OPERATORS
    whole = [Case(operator, size) for operator in operators for size in SIZES[is_engine:]]
    late = [Case(SPARSE, 200, tuple(range(first, ranks))) for first in range(ranks)]
    return [*whole, *late, Case(SPARSE, 200, bad=(ranks - 1,)), Case(SPARSE, 200)]


def on_members(ranks: int, task: Callable[[Communicator], Any]) -> list[Any]:
    """What `task` returns on each member; they are threads of this process."""

    def member(rank: int) -> Any:
        store = sparsewire.FileStore(directory)
        with sparsewire.init(store, rank=rank, world_size=ranks, timeout=TIMEOUT_S) as communicator:
            return task(communicator)

    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(member, range(ranks)))


def outcome(way: Sums, communicator: Communicator, vector: Vector | None) -> Outcome:
    """The bits of a sum and the contributors, or the error."""
    try:
        added = way.run(communicator, vector, TIMEOUT_S)
    except CompressError as error:
        way.abort()
        return f"CompressError: {error}"
    if not np.isfinite(added.total).all():
        way.abort()
        return "a sum that is not finite"
    check_taken_off(way, added, vector)
    way.commit()
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
            total = total + decoded(way, case, vector, ranks)
    return decoded(way, case, total, ranks) if way == "owned-lossy" and total.any() else total


def decoded(way: str, case: Case, vector: Vector, ranks: int) -> Vector:
    if way == "dense":
        return vector
    result: Vector = vector.copy()
    parts = parts_of(case.elements, ranks, CHUNK) if "owned" in way else [slice(None)]
    for part in parts:
        if result[part].size:
            result[part] = parse(case.operator, result[part].size).compress(vector[part], Draws(0))
    return result


@pytest.mark.parametrize("ranks", range(1, 6))
@pytest.mark.parametrize("way", WAYS)
def test_sums_equal_the_reference_on_every_member(way: str, ranks: int) -> None:
    def task(communicator: Communicator) -> list[Outcome]:
        rank = communicator.rank
        return [
            outcome(WAYS[way](case, rank), communicator, case.vector(rank))
            for case in cases(way, ranks)
        ]

    for case, *found in zip(cases(way, ranks), *on_members(ranks, task), strict=True):
        if case.bad:
            # The norm of a dense sum tells rounds, which take it anyway.
            wanted = "not finite" if way == "dense" else "CompressError"
            assert all(wanted in str(each) for each in found), (case, found)
            continue
        assert len(set(found)) == 1, case
        bits, contributors = found[0]
        total: Any = np.frombuffer(bits, np.float32)
        np.testing.assert_array_equal(total, reference(way, case, ranks), str(case))
        assert contributors == ranks - len(case.late)


class Broken(Identity):
    """Packs messages that it cannot unpack."""

    def pack(self, code: Any) -> bytes:
        return b"broken"


def broken_by(rank: int, member: int) -> Callable[[int], Identity]:
    return Broken if rank == member else Identity


BREAKABLE: dict[str, Callable[[int, int], Sums]] = {
    "gather": lambda rank, member: Gather(broken_by(rank, member)(200), Draws(0)),
    "owned": lambda rank, member: Owned(200, broken_by(rank, member), Draws(0), chunk=CHUNK),
    "answers": lambda rank, member: Owned(
        200, Identity, Draws(0), broken_by(rank, member), chunk=CHUNK
    ),
}


@pytest.mark.parametrize("way", BREAKABLE)
def test_a_malformed_message_fails_the_round_on_all_and_the_communicator_goes_on(way: str) -> None:
    def task(communicator: Communicator) -> list[Outcome]:
        rank = communicator.rank
        vector = normal(rank, 200)
        return [outcome(BREAKABLE[way](rank, member), communicator, vector) for member in (1, -1)]

    for failed, again in on_members(3, task):
        assert "rank 1" in str(failed)
        assert "malformed" in str(failed)
        assert again[1] == 3


def test_what_owners_owe_advances_only_with_rounds_that_count() -> None:
    operator = f"rounded:2:4+{SPARSE}"
    counts = [True, False, True, True, False, True]

    def task(communicator: Communicator) -> tuple[Vector, Vector, Vector, float]:
        """What came and what was sent in rounds that count, what is owed, and its norm."""
        way = Owned(1000, operator, Draws(0), operator, CHUNK)
        came, sent, owed = (np.zeros(1000, np.float32) for _ in range(3))
        for number, counted in enumerate(counts):
            vector = normal(10 * number + communicator.rank, 1000)
            first = way.run(communicator, vector, TIMEOUT_S).total.tobytes()
            added = way.run(communicator, vector, TIMEOUT_S)
            assert added.total.tobytes() == first
            if counted:
                came += added.total
                way.take_off(added.sent, sent)
                way.commit()
            way.abort()
        norm = way.owed
        assert way.reset(owed) == 0.0
        assert way.owed == 0.0
        return came, sent, owed, norm

    found = on_members(3, task)
    came = found[0][0].astype(np.float64)
    sent = -np.sum([each[1] for each in found], 0, np.float64)
    owed = np.sum([each[2] for each in found], 0, np.float64)
    assert np.linalg.norm(owed) > 1
    np.testing.assert_allclose(came + owed, sent, atol=1e-4)
    for _, _, part, norm in found:
        np.testing.assert_allclose(np.linalg.norm(part), norm, rtol=1e-6)


def test_what_is_owed_is_told_where_nobody_takes_it() -> None:
    def task(communicator: Communicator) -> tuple[float, float]:
        way = Owned(200, SPARSE, Draws(0), SPARSE, CHUNK)
        way.run(communicator, normal(communicator.rank, 200), TIMEOUT_S)
        way.commit()
        return way.owed, way.reset()

    for owed, lost in on_members(3, task):
        assert owed == lost > 0


def test_other_members_without_a_reset_are_refused() -> None:
    way = Owned(200, SPARSE, Draws(0), chunk=CHUNK)
    on_members(1, lambda one: way.run(one, normal(0, 200), TIMEOUT_S))

    def task(communicator: Communicator) -> None:
        if communicator.rank == 0:
            with pytest.raises(MismatchError, match="reset"):
                way.run(communicator, normal(0, 200), TIMEOUT_S)

    on_members(2, task)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_pairs_add_up_their_two(ranks: int) -> None:
    def task(communicator: Communicator) -> list[Outcome]:
        way = Pairs(parse(SPARSE, 200), Draws(0), seed=3)
        vectors = [normal(communicator.rank, 200)] * 3
        return [outcome(way, communicator, vector) for vector in vectors]

    found = on_members(ranks, task)
    sent = [parse(SPARSE, 200).compress(normal(rank, 200), Draws(0)) for rank in range(ranks)]
    for number in range(3):
        for rank, other in enumerate(partners(ranks, number, seed=3)):
            pair = sorted({rank, other})
            total = sum((sent[each] for each in pair), np.zeros(200, np.float32))
            assert found[rank][number] == (total.tobytes(), len(pair))


@given(st.integers(1, 40), st.integers(0, 1000), st.integers(0, 5))
def test_partners_are_each_others(members: int, number: int, seed: int) -> None:
    found = partners(members, number, seed)
    assert [found[other] for other in found] == list(range(members))
    assert sum(rank == other for rank, other in enumerate(found)) == members % 2


def test_partners_change_from_round_to_round() -> None:
    assert len({tuple(partners(4, number, 0)) for number in range(30)}) == 3


@given(st.integers(1, 5000), st.integers(1, 9), st.integers(1, 300))
def test_parts_are_whole_chunks_and_even(elements: int, members: int, chunk: int) -> None:
    parts = parts_of(elements, members, chunk)
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (len(parts), parts[0].start, parts[-1].stop) == (members, 0, elements)
    assert all(part.start % chunk == 0 or part.start == elements for part in parts)
    chunks = [-(-(part.stop - part.start) // chunk) for part in parts]
    assert max(chunks) - min(chunks) <= 1


@given(st.sampled_from(list(Kind)), st.binary(max_size=600))
def test_parcels_come_back(kind: Kind, message: bytes) -> None:
    parcel = Parcel(kind, message if kind is not Kind.NOTHING else b"")
    assert unwrap(wrap(parcel, 10), 0) == parcel


@given(
    st.lists(st.integers(0, 9), unique=True).map(sorted),
    st.integers(0, 2**63) | st.integers(0, 2600),
    st.integers(0, 255),
)
def test_rows_of_any_content_are_a_parcel_or_refused(
    places: Sequence[int], length: int, kind: int
) -> None:
    values = np.ones((len(places), ROW), np.int32)
    values.reshape(-1).view(np.uint8)[:9] = [*length.to_bytes(8, "little"), kind][: values.nbytes]
    rows = SparseVector(np.array(places, np.int64), values, 10)
    whole = bool(places) and places[0] == 0
    needed = -(-(8 + length) // (4 * ROW))
    if places and not (whole and kind in (1, 2) and length and places[-1] < needed <= 10):
        with pytest.raises(CompressError, match="rank 3"):
            unwrap(rows, 3)
    else:
        assert len(unwrap(rows, 3).message) == (length - 1 if places else 0)


def test_the_engine_adds_only_what_is_marked() -> None:
    with pytest.raises(CompressError, match="sparsifier"):
        EngineSum(parse("sign", 200), Draws(0))
