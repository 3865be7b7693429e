"""Messages arrive as they were sent, simulated or framed for a communicator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run_ranks

import sparsewire
from sparsewire.methods.network import Distributed, Simulated, framed, unframed


def messages_of(rank: int) -> list[bytes]:
    """Empty ones, some around the ends of rows, long ones, and long ones that are mostly zeros."""
    lengths = [0, 1, 247, 248, 249, 1000 * (rank % 2), 100_000 if rank == 2 else 0]
    messages = [np.random.default_rng([rank, n]).bytes(n) for n in lengths]
    return [*messages, *(text + bytes(400_000) + text[:rank] for text in messages[-2:])]


def exchange_all() -> tuple[list[list[bytes]], int]:
    with sparsewire.init() as comm:
        network = Distributed(comm)
        assert (network.workers, list(network.local)) == (comm.world_size, [comm.rank])
        heard = [network.exchange([message]) for message in messages_of(comm.rank)]
        return heard, network.bytes_sent


def test_every_rank_hears_every_message() -> None:
    wanted = [list(messages) for messages in zip(*map(messages_of, range(4)), strict=True)]
    for rank, (heard, sent) in enumerate(run_ranks(4, exchange_all)):
        assert heard == wanted
        assert sent == sum(map(len, messages_of(rank)))


@given(st.binary(max_size=600))
def test_framing_keeps_the_bytes(message: bytes) -> None:
    vector = framed(message)
    assert unframed(vector.indices, vector.values) == message
    assert vector.values.nbytes < len(message) + 8 + 256


@given(st.lists(st.sampled_from([b"", bytes(300), b"a" * 200]), max_size=9).map(b"".join))
def test_rows_of_zeros_may_be_missing(message: bytes) -> None:
    vector = framed(message)
    named = vector.values.any(axis=1)
    assert unframed(vector.indices[named], vector.values[named]) == message


def test_simulated_network_counts_and_checks() -> None:
    network = Simulated(3)
    assert network.exchange([b"a", b"", b"ccc"]) == [b"a", b"", b"ccc"]
    assert network.bytes_sent == 4
    with pytest.raises(ValueError, match="3 local workers send 1"):
        network.exchange([b"a"])
    with pytest.raises(ValueError, match="at least one"):
        Simulated(0)
