"""Bytes by formula against those that the engine counts, and the way that is chosen by them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from test_outer_sums import TIMEOUT_S, normal, on_members

from sparsewire import Communicator
from sparsewire.compress import Draws, Identity, parse
from sparsewire.options import LinkFigures
from sparsewire.torch.outer.sums import formula
from sparsewire.torch.outer.sums.choice import Way, predict, sums_for
from sparsewire.torch.outer.sums.dense import Dense
from sparsewire.torch.outer.sums.engine import EngineSum
from sparsewire.torch.outer.sums.gather import Gather
from sparsewire.torch.outer.sums.owned import Owned
from sparsewire.torch.outer.sums.pairs import Pairs
from sparsewire.torch.outer.sums.parts import MakeOperator, maker_of, parts_of
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
    costs = predict(maker_of(text), elements, members, SLOW)
    return min(costs, key=lambda way: costs[way].seconds)


def test_short_messages_are_gathered_until_members_are_many() -> None:
    assert chosen(SPARSE, 8) is Way.GATHER
    assert chosen(SPARSE, 400, 400 * 4096) is Way.OWNED


def test_dense_messages_are_added_by_owners_from_some_members_on() -> None:
    assert chosen("rounded:8:64", 2) is Way.GATHER
    assert chosen("rounded:8:64", 16) is Way.OWNED


def test_values_as_they_are_go_by_the_engine_where_their_places_meet() -> None:
    assert chosen("block-top-k:0.5:256", 16) is not Way.GATHER


def test_what_parts_would_code_otherwise_is_not_owned() -> None:
    assert Way.OWNED not in predict(maker_of("top-k:0.01"), ELEMENTS, 4, SLOW)
    assert Way.OWNED in predict(maker_of("span-top-k:64:4096"), ELEMENTS, 4, SLOW)


def test_members_choose_alike_whatever_each_predicts() -> None:
    def task(communicator: Communicator) -> list[type[Sums]]:
        operators: list[str | MakeOperator] = ["rounded:8:64", SPARSE, Identity]
        return [
            type(sums_for(communicator, 20_000, operator, Draws(0), timeout=TIMEOUT_S))
            for operator in operators
        ]

    first, *others = on_members(3, task)
    assert all(other == first for other in others)


def test_sums_are_coded_only_if_that_is_asked_for() -> None:
    def task(communicator: Communicator) -> type[Sums]:
        return type(sums_for(communicator, 20_000, SPARSE, Draws(0), down=SPARSE))

    assert on_members(2, task) == [Owned, Owned]
