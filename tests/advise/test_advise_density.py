"""Unions among other numbers of ranks than were recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.tools.advise.prediction.density import Overlap, element_share

densities = st.floats(0, 1)
ranks = st.integers(1, 512)


@given(densities, densities, ranks, densities)
def test_what_was_recorded_comes_back(rank: float, more: float, recorded: int, full: float) -> None:
    # What all have in every step is no more in the union than on one rank.
    union = rank + more * min(1 - rank, (recorded - 1) * max(rank - full, 0.0))
    overlap = Overlap.of(rank, union, recorded, full)
    assert overlap.union(1) == pytest.approx(rank, abs=1e-9)
    if recorded > 1 and full < rank < 1:
        assert overlap.union(recorded) == pytest.approx(union, rel=1e-6, abs=1e-9)


@given(densities, densities, st.integers(2, 64), ranks)
def test_more_ranks_never_have_less(rank: float, more: float, recorded: int, asked: int) -> None:
    overlap = Overlap.of(rank, rank + more * (1 - rank), recorded)
    assert overlap.union(asked) <= overlap.union(asked + 1) + 1e-12
    assert 0 <= overlap.union(asked) <= 1


def test_unions_that_no_ranks_can_have_grow_with_the_ranks_at_most() -> None:
    assert Overlap.of(1e-300, 1.0, 2).union(1000) < 1e-290


@given(st.floats(0, 0.999), ranks)
def test_independent_and_equal_ranks_are_exact(rank: float, asked: int) -> None:
    independent = Overlap.of(rank, 1 - (1 - rank) ** 4, 4)
    assert independent.union(asked) == pytest.approx(1 - (1 - rank) ** asked, abs=1e-9)
    assert Overlap.of(rank, rank, 4).union(asked) == pytest.approx(rank)


def test_words_by_zipf_are_close() -> None:
    """100,000 words, P(k) falls like 1/k; 500 of them a rank: 4 ranks recorded, 16 asked for."""
    words, drawn = 100_000, 500
    total = sum(1 / k for k in range(1, words + 1))

    def union(asked: int) -> float:
        kept = sum((1 - 1 / (k * total)) ** (drawn * asked) for k in range(1, words + 1))
        return 1 - kept / words

    predicted = Overlap.of(union(1), union(4), 4).union(16)
    assert predicted == pytest.approx(union(16), rel=0.1)


def test_dense_layers_beside_an_embedding_stay_apart() -> None:
    """A third is dense, the rest independent."""
    one, four, many = (1 / 3 + 2 / 3 * (1 - 0.99**n) for n in (1, 4, 32))
    assert Overlap.of(one, four, 4, full=1 / 3).union(32) == pytest.approx(many)


def test_elements_go_in_the_cheaper_format() -> None:
    assert element_share(0.001, 4) == pytest.approx(0.0015)
    assert element_share(0.5, 4) == pytest.approx(0.5 + 1 / 32)
