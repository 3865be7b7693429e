"""The limits of the cost model, what never makes it faster, and the records behind it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire._core import CHUNK_ELEMENTS, DENSE_BLOCKS
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.prediction.transfers import Way, diana, engine, feedback, ring

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import advise_costs

WAYS: list[Way] = [ring, engine, feedback, diana]
SLOW = Network(1e9, hosts=4)
PAYLOAD = 100e6


def gradient(blocks: float, elements: float | None = None, growth: float = 1.0) -> Gradient:
    one = Overlap(Overlap.of(blocks, None, 1).one, growth)
    single = one.of_density(blocks if elements is None else elements, 0.0)
    return Gradient(PAYLOAD, 4, one, single, (int(PAYLOAD) // 4,))


def test_dense_is_as_a_ring() -> None:
    ours, theirs = engine(gradient(1.0), SLOW), ring(gradient(1.0), SLOW)
    assert theirs.bytes == 1.5 * PAYLOAD
    assert ours.bytes == pytest.approx(theirs.bytes)
    assert ours.seconds == pytest.approx(theirs.seconds / costs.GLOO_PAUSES, rel=0.01)


def test_zeros_are_only_looked_for() -> None:
    found = engine(gradient(0.0), SLOW)
    assert found.bytes == 0
    assert found.seconds == pytest.approx(
        costs.CALL_S + PAYLOAD * costs.SCAN_BYTE_S + PAYLOAD / 4 / CHUNK_ELEMENTS * costs.CHUNK_S
    )


@pytest.mark.parametrize("way", WAYS)
def test_on_one_host_nothing_leaves_it(way: Way) -> None:
    fast, slow = (way(gradient(0.5), Network(bits, 1, 4)) for bits in (1e6, 1e12))
    assert fast == slow
    assert fast.bytes == 0
    assert fast.seconds > 0


@pytest.mark.parametrize("way", [ring, engine])
def test_one_rank_sends_nothing(way: Way) -> None:
    found = way(gradient(0.5), Network(1e9, 1))
    assert found.bytes == found.seconds == 0


def test_ranks_of_a_host_are_added_up_before_they_leave_it() -> None:
    """As the wire limit of benchmarks.md has it: 2 hosts with 4 ranks, 1% of the blocks."""
    found = engine(gradient(0.01), Network(1e9, 2, 4))
    assert found.bytes == pytest.approx(0.5 * PAYLOAD * ((1 - 0.99**4) + (1 - 0.99**8)))


def test_hooks_send_their_message_to_every_rank() -> None:
    many, few = (feedback(gradient(1.0), Network(1e9, hosts)).bytes for hosts in (8, 4))
    assert few == pytest.approx(3 * PAYLOAD / 4 * costs.FEEDBACK_BITS / 8)
    assert many == pytest.approx(7 / 3 * few)
    small = replace(gradient(1.0), parameters=(1000, 1000))
    assert diana(small, SLOW).bytes == 3 * 2000 * 4


def test_sparse_tensors_go_by_row() -> None:
    rows = replace(gradient(0.04, 0.01, growth=0.0), row_bytes=256)
    assert engine(rows, SLOW).bytes == pytest.approx(1.5 * PAYLOAD * 0.01 * (1 + 4 / 256))
    # Gloo gives all rows to all, with 64-bit indices.
    assert ring(rows, SLOW).bytes == pytest.approx(3 * PAYLOAD * 0.01 * (1 + 8 / 256))
    assert feedback(rows, SLOW) == engine(rows, SLOW)


def test_gpus_take_copies_and_nccl_no_processor() -> None:
    fast = Network(1e15, 4)
    on_device = replace(fast, on_device=True)
    assert ring(gradient(1.0), on_device).seconds < ring(gradient(1.0), fast).seconds
    more = engine(gradient(0.1), on_device).seconds - engine(gradient(0.1), fast).seconds
    assert more == pytest.approx(PAYLOAD * (0.1 + 1 - 0.9**4) * costs.COPY_BYTE_S)


networks = st.builds(
    Network,
    link_bits_s=st.floats(1e6, 1e12),
    hosts=st.integers(1, 64),
    ranks=st.integers(1, 8),
    cores=st.none() | st.integers(1, 64),
)


@given(st.sampled_from(WAYS), networks, st.floats(1, 1000), st.floats(0, 1), st.floats(0, 1))
def test_more_bandwidth_is_never_slower(
    way: Way, network: Network, factor: float, blocks: float, share: float
) -> None:
    faster = replace(network, link_bits_s=network.link_bits_s * factor)
    one = gradient(blocks, blocks * share)
    assert way(one, faster).seconds <= way(one, network).seconds * (1 + 1e-9)


@given(networks, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_denser_is_never_faster(
    network: Network, blocks: float, more: float, share: float, growth: float
) -> None:
    """As long as zeros are looked for at all."""
    blocks, denser = (at * (DENSE_BLOCKS - 1e-6) for at in (blocks, blocks + more * (1 - blocks)))
    less = engine(gradient(blocks, blocks * share, growth), network)
    dense = engine(gradient(denser, denser * share, growth), network)
    assert less.seconds <= dense.seconds * (1 + 1e-9)


def test_agrees_with_the_records() -> None:
    found = [ratio for each in advise_costs.compared() for ratio in (each.gloo, each.sparsewire)]
    ratios = [ratio for ratio in found if ratio is not None]
    assert len(ratios) > 60
    close = [ratio for ratio in ratios if 0.8 <= ratio <= 1.2]
    assert len(close) >= 0.95 * len(ratios)
    assert all(0.6 < ratio < 1.4 for ratio in ratios)
