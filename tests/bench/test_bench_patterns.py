"""The data that a pattern and a seed make."""

from __future__ import annotations

import numpy as np
import pytest

from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.patterns import Pattern, contribute
from sparsewire.tools.measure.wire_limit import nonzero_blocks

FLOAT32 = np.dtype(np.float32)
ELEMENTS = 256 * 100 + 7


def dense(pattern: Pattern, density: float, rank: int, elements: int = ELEMENTS) -> np.ndarray:
    part = contribute(pattern, elements, density, FLOAT32, 1, rank)
    return part.dense().reshape(-1)[:elements]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("blocks:256", Pattern(256)),
        ("blocks:256,same", Pattern(256, same=True)),
        ("random", Pattern(1)),
        ("random, same", Pattern(1, same=True)),
        ("zipf:1.1", Pattern(1, exponent=1.1)),
        ("zipf:2,same", Pattern(1, same=True, exponent=2.0)),
        ("blocks:256,apart", Pattern(256, apart=True)),
    ],
)
def test_patterns_are_read(text: str, pattern: Pattern) -> None:
    assert Pattern.parse(text) == pattern


@pytest.mark.parametrize(
    "text",
    [
        "",
        "blocks",
        "blocks:0",
        "blocks:x",
        "random:4",
        "rows",
        "a,b",
        "zipf",
        "zipf:-1",
        "zipf:1,x",
        "zipf:1,apart",
        "blocks:256,same,apart",
    ],
)
def test_unknown_patterns_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError):
        Pattern.parse(text)


def test_ranks_apart_share_no_block() -> None:
    marks = [nonzero_blocks(dense(Pattern(256, apart=True), 0.25, rank)) for rank in range(4)]
    assert [int(each.sum()) for each in marks] == [25] * 4
    assert np.sum(marks, axis=0).max() == 1
    with pytest.raises(ExperimentError, match="no room for ranks apart"):
        dense(Pattern(256, apart=True), 0.26, 3)


def test_block_density_is_met_exactly() -> None:
    blocks = nonzero_blocks(dense(Pattern(256), 0.1, 0))
    assert len(blocks) == 101
    assert blocks.sum() == 10


def test_a_full_vector_has_no_empty_block() -> None:
    assert nonzero_blocks(dense(Pattern(256), 1.0, 0)).all()


def test_random_elements_touch_many_blocks() -> None:
    vector = dense(Pattern(1), 0.01, 0)
    assert np.count_nonzero(vector) == round(0.01 * ELEMENTS)
    assert nonzero_blocks(vector).mean() > 0.5


def test_ranks_differ_in_positions_unless_the_same_are_wanted() -> None:
    def positions(pattern: Pattern, rank: int) -> list[int]:
        return np.flatnonzero(dense(pattern, 0.1, rank)).tolist()

    assert positions(Pattern(256), 0) != positions(Pattern(256), 1)
    assert positions(Pattern(256, same=True), 0) == positions(Pattern(256, same=True), 1)
    assert (dense(Pattern(256, same=True), 0.1, 0) != dense(Pattern(256, same=True), 0.1, 1)).any()


def test_any_process_makes_the_same_data() -> None:
    assert (dense(Pattern(256), 0.1, 3) == dense(Pattern(256), 0.1, 3)).all()


@pytest.mark.parametrize("density", [0.001, 0.04, 0.06, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("text", ["random", "zipf:1.1"])
def test_density_of_elements_is_met_exactly(text: str, density: float) -> None:
    vector = dense(Pattern.parse(text), density, 2)
    assert np.count_nonzero(vector) == round(density * ELEMENTS)


def test_random_positions_are_spread_evenly() -> None:
    places = np.flatnonzero(dense(Pattern(1), 0.2, 0))
    halves = np.histogram(places, bins=2, range=(0, ELEMENTS))[0]
    assert abs(halves[0] - halves[1]) < 6 * np.sqrt(len(places))


def test_a_power_law_prefers_the_first_positions_of_every_rank() -> None:
    zipf = Pattern.parse("zipf:1.1")
    places = [np.flatnonzero(dense(zipf, 0.01, rank)) for rank in range(2)]
    assert all(np.median(of_rank) < ELEMENTS / 10 for of_rank in places)
    assert len(np.intersect1d(*places)) > 0.2 * len(places[0])
    assert places[0].tolist() != places[1].tolist()
