"""How much of vectors is not zero."""

import numpy as np
import pytest

from sparsewire.measure.density import Density, nonzero_blocks


def test_density_counts_elements_and_blocks() -> None:
    table, short = np.zeros(4 * 256), np.zeros(10)
    table[256:261] = 1
    short[0] = -1
    density = Density.of([table, short])
    assert density.element == pytest.approx(6 / 1034)
    assert density.block == pytest.approx(2 / 5)


def test_the_last_block_may_be_shorter() -> None:
    vector = np.zeros(600, np.float32)
    vector[599] = 1
    assert nonzero_blocks(vector).tolist() == [False, False, True]
