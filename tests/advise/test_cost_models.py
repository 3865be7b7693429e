"""Three models tell what the engine's exchange costs; each is checked against the others.

The engine chooses an algorithm by one (`core/proto/exchange/choice.cpp`), tensors on a device
their path by one (`device/path_cost.py`), and `advise` predicts by one. They differ in what they
know of a vector. What they all say is what crosses the links, and that must be the same.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from sparsewire._core import ALGORITHMS, predict
from sparsewire.device import path_cost
from sparsewire.device.path_cost import Path, Sample, Speeds
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.prediction.transfers import engine

LENGTH = 25_000_000
PAYLOAD = 4 * LENGTH
GRID = [(d, n) for d in (0.01, 0.1, 0.3, 1.0) for n in (2, 4, 16)]


def by_the_engine(density: float, ranks: int) -> float:
    """Bytes, as the seconds on a link of one byte a second where nothing else takes time."""
    named = [round(density * LENGTH)] * ranks
    return predict(ALGORITHMS["stream"], LENGTH, 4, named, ranks, 0.0, 1.0, 0.0)


def by_the_path(path: Path, density: float, ranks: int) -> float:
    sample = Sample(density, 1 - (1 - density) ** ranks)
    with patch.multiple(path_cost, _ROW_S=0.0, _DENSE_S=0.0):
        return path_cost.predict(path, PAYLOAD, ranks, sample, Speeds(0.0, 0.0, 1.0))


def by_advise(blocks: float, elements: float, ranks: int) -> float:
    overlaps = (Overlap.of(density, None, 1) for density in (blocks, elements))
    return engine(Gradient(PAYLOAD, 4, *overlaps, (LENGTH,)), Network(1e9, ranks)).bytes


@pytest.mark.parametrize(("density", "ranks"), GRID)
def test_blocks_cross_the_link_alike(density: float, ranks: int) -> None:
    """Of blocks that are not zero, on each rank others."""
    rows = by_the_path(Path.PACKED, density, ranks)
    assert rows == pytest.approx(by_advise(density, 1.0, ranks))


@pytest.mark.parametrize(("density", "ranks"), GRID)
def test_elements_cross_the_link_alike(density: float, ranks: int) -> None:
    """Of elements that are not zero. They carry their positions, by codes that differ a little."""
    assert by_the_engine(density, ranks) == pytest.approx(by_advise(1.0, density, ranks), rel=0.05)


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_dense_vectors_cross_the_link_alike(ranks: int) -> None:
    found = by_the_engine(1.0, ranks), by_advise(1.0, 1.0, ranks)
    assert found == pytest.approx([by_the_path(Path.DENSE, 1.0, ranks)] * 2)
