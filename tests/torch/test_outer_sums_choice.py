"""Bytes by formula against those that the engine counts, and the way that is chosen by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_outer_sums import TIMEOUT_S, normal, on_members

from sparsewire import Communicator
from sparsewire.compress import CompressError, Draws, parse
from sparsewire.options import LinkFigures
from sparsewire.torch.outer.sums import formula
from sparsewire.torch.outer.sums.choice import agreed, sums_for
from sparsewire.torch.outer.sums.cost import Cost, Way, predict
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.engine import EngineSum
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.pairs import Pairs
from sparsewire.torch.outer.sums.parts import maker_of, parts_of
from sparsewire.torch.outer.sums.sample import sampled
from sparsewire.torch.outer.sums.sums import Sums

ELEMENTS = 1 << 20
SPARSE = "rounded:2:64+span-top-k:64:4096"
SLOW = LinkFigures(1e-3, 8e-8, 1e-9)
Predicted = Callable[[int], float]


def message(text: str, elements: int = ELEMENTS) -> int:
    return formula.message_bytes(maker_of(text)(elements))


def owned_bytes(members: int, down: str) -> float:
    """By what messages take: exact sums of independent members are as wide as their union."""
    sizes = [part.stop - part.start for part in parts_of(ELEMENTS, members)]
    up = [message(SPARSE, size) for size in sizes]
    union = formula.union_share(64 / 4096, members)
    coded = [formula.answer_bytes(parse(SPARSE, n), parse(SPARSE, n), members) for n in sizes]
    exact = [formula.exact_bytes(size, union) for size in sizes]
    return formula.owned_bytes(up, exact if down == "exact" else coded)


WAYS: dict[str, tuple[Callable[[int], Sums], Predicted]] = {
    "dense": (lambda rank: Dense(ELEMENTS), lambda n: formula.dense_bytes(ELEMENTS, n)),
    "gather": (
        lambda rank: Gather(parse(SPARSE, ELEMENTS), Draws(0)),
        lambda n: formula.gather_bytes(message(SPARSE), n),
    ),
    "owned": (
        lambda rank: Owned(ELEMENTS, SPARSE, Draws(0), SPARSE),
        lambda n: owned_bytes(n, SPARSE),
    ),
    "exact": (lambda rank: Owned(ELEMENTS, SPARSE, Draws(0)), lambda n: owned_bytes(n, "exact")),
    "pairs": (
        lambda rank: Pairs(parse(SPARSE, ELEMENTS), Draws(0)),
        lambda n: formula.pairs_bytes(message(SPARSE), n),
    ),
    "stream": (
        lambda rank: EngineSum(parse("span-top-k:64:4096", ELEMENTS), Draws(0), "stream"),
        lambda n: formula.stream_bytes(ELEMENTS, ELEMENTS // 64, n),
    ),
}


@pytest.mark.parametrize("members", [2, 5, 8])
@pytest.mark.parametrize("way", WAYS)
def test_the_engine_counts_the_bytes_of_the_formula(way: str, members: int) -> None:
    make, predicted = WAYS[way]

    def counters(communicator: Communicator) -> NDArray[np.int64]:
        communicator.barrier()
        stats = communicator.stats()
        communicator.barrier()  # Else what others send next might be counted already.
        return np.array([stats["bytes_sent"], stats["bytes_received"]])

    def task(communicator: Communicator) -> NDArray[np.int64]:
        sums = make(communicator.rank)
        before = counters(communicator)
        sums.run(communicator, normal(communicator.rank, ELEMENTS), TIMEOUT_S)
        return counters(communicator) - before

    counted = np.mean(on_members(members, task), 0)
    np.testing.assert_allclose(counted, predicted(members), rtol=0.03)


def test_positions_take_little_more_than_they_must() -> None:
    operator = parse("span-top-k:64:4096", ELEMENTS)
    kept = ELEMENTS // 64
    bits = (formula.message_bytes(operator) - formula.FLOAT_BYTES * kept) * 8 / kept
    least = formula.position_bits(64, 4096)
    assert least == pytest.approx(7.36, abs=0.01)
    assert least < bits < least * 1.03


def chosen(text: str, members: int, elements: int = ELEMENTS) -> Way:
    costs = predict(sampled(maker_of(text), elements), members, SLOW)
    return min(costs, key=lambda way: costs[way].seconds)


def test_short_messages_are_gathered_until_members_are_many() -> None:
    assert chosen(SPARSE, 8) is Way.GATHER
    assert chosen(SPARSE, 400, 400 * 4096) is Way.OWNED


def test_dense_messages_are_added_by_owners_from_some_members_on() -> None:
    assert chosen("rounded:8:64", 2) is Way.GATHER
    assert chosen("rounded:8:64", 16) is Way.OWNED


def test_values_as_they_are_go_by_the_engine_where_their_places_meet() -> None:
    assert chosen("block-top-k:0.5:256", 16) is Way.ENGINE


def test_what_parts_would_code_otherwise_is_not_owned() -> None:
    assert Way.OWNED not in predict(sampled(maker_of("top-k:0.01"), ELEMENTS), 4, SLOW)
    assert Way.OWNED in predict(sampled(maker_of(SPARSE), ELEMENTS), 4, SLOW)


@pytest.mark.parametrize("text", ["top-k:3000000", SPARSE])
def test_a_sample_tells_of_vectors_that_are_longer(text: str) -> None:
    elements = 1 << 22
    found = sampled(maker_of(text), elements)
    message = formula.message_bytes(parse(text, elements))
    assert found.message == pytest.approx(message, rel=0.01)
    assert found.elements == elements


def test_members_choose_alike_whatever_each_predicts() -> None:
    costs = [
        {Way.GATHER: Cost(1, 1.0), Way.OWNED: Cost(1, 2.0)},
        {Way.GATHER: Cost(1, 3.0), Way.OWNED: Cost(1, 1.0)},
    ]

    def task(communicator: Communicator) -> Way:
        return agreed(communicator, costs[communicator.rank], TIMEOUT_S)

    assert on_members(2, task) == [Way.OWNED] * 2


def taken(communicator: Communicator, settings: dict[str, Any]) -> tuple[type, bytes]:
    """The way that is taken for normal vectors, and the bits of the sum."""
    sums = sums_for(elements=20_000, **{"compressor": SPARSE, **settings})
    added = sums.run(communicator, normal(communicator.rank, 20_000), TIMEOUT_S)
    return type(getattr(sums, "way", sums)), added.total.tobytes()


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({}, Gather),
        ({"compressor": "dense"}, Dense),
        ({"compressor": "dense", "down": SPARSE}, Owned),
        ({"compressor": "dense", "topology": "pairs"}, Pairs),
        ({"topology": "pairs"}, Pairs),
        ({"down": "exact"}, Owned),
        ({"way": "owned"}, Owned),
        ({"way": "engine"}, EngineSum),
    ],
)
def test_ways_that_are_asked_for_are_taken(settings: dict[str, Any], way: type[Sums]) -> None:
    found = on_members(2, lambda communicator: taken(communicator, settings))
    assert {each for each, _ in found} == {way}
    assert len({bits for _, bits in found}) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"way": "gather", "down": SPARSE},
        {"way": "around"},
        {"topology": "ring"},
        {"topology": "pairs", "way": "owned"},
        {"topology": "pairs", "down": SPARSE},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"sums=|topology=|down="):
        sums_for(SPARSE, 20_000, **settings)


@pytest.mark.parametrize("settings", [{"way": "engine"}, {"down": "top-k:30000"}])
def test_operators_that_do_not_fit_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(CompressError):
        sums_for("sign", 20_000, **settings)


def test_members_draw_apart_and_again_after_a_reset() -> None:
    def task(communicator: Communicator) -> list[bytes]:
        sums = sums_for("rand-k:0.01", 20_000, way="gather")
        found = []
        for rank in range(communicator.world_size):
            vector = np.ones(20_000, np.float32) if rank == communicator.rank else None
            found.append(sums.run(communicator, vector, TIMEOUT_S).total.tobytes())
            sums.reset()
        return found

    first, other = on_members(2, task)
    assert first == other
    assert len(set(first)) == 2
