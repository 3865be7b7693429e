"""The least bytes that an all_reduce can do with, by what its input holds."""

import numpy as np
import pytest

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.measure import wire_limit
from sparsewire.tools.measure.wire_limit import Share

MB = 1_000_000


def test_a_dense_colocated_reduction_moves_what_a_ring_moves() -> None:
    assert wire_limit.sparse_bytes(MB, 4, 0, wire_limit.DENSE) == 2 * 3 / 4 * MB
    assert wire_limit.ring_bytes(MB, 4) == 2 * 3 / 4 * MB


def test_colocated_ranks_send_their_own_blocks_and_the_union() -> None:
    assert wire_limit.colocated_bytes(MB, 4, Share(0.1, 0.3)) == pytest.approx(0.75 * 0.4 * MB)


def test_scattered_elements_need_their_values_and_the_entropy_of_their_positions() -> None:
    assert wire_limit.share(0.1, 0.1, 32) == 0.1
    assert wire_limit.share(1.0, 0.5, 32) == pytest.approx(0.5 + 1 / 32)
    assert wire_limit.share(1.0, 1.0, 32) == 1.0
    assert wire_limit.share(0.0, 0.0, 32) == 0.0


def test_few_aggregators_are_the_bottleneck_and_many_are_not() -> None:
    share = Share(0.1, 0.3)
    assert wire_limit.sparse_bytes(MB, 4, 1, share) == pytest.approx(4 * 0.3 * MB)
    assert wire_limit.sparse_bytes(MB, 4, 8, share) == pytest.approx(0.3 * MB)


def test_an_aggregator_with_a_fast_link_counts_as_several() -> None:
    cluster = Cluster(4, 1, True, "500mbit", aggregator_link="1gbit")
    limit = wire_limit.sparse_bytes(MB, 4, cluster.aggregator_links, wire_limit.DENSE)
    assert limit == pytest.approx(2 * MB)
    assert Cluster(4, 3, True, "500mbit").aggregator_links == 3


def test_density_counts_elements_and_blocks() -> None:
    table, short = np.zeros(4 * 256), np.zeros(10)
    table[256:261] = 1
    short[0] = -1
    density = wire_limit.densities([table, short])
    assert density["element"] == pytest.approx(6 / 1034)
    assert density["block"] == pytest.approx(2 / 5)


def test_the_last_block_may_be_shorter() -> None:
    vector = np.zeros(600, np.float32)
    vector[599] = 1
    assert wire_limit.nonzero_blocks(vector).tolist() == [False, False, True]
