"""Messages arrive as they were sent, simulated or over a communicator."""

from __future__ import annotations

import numpy as np
import pytest
from support import run_ranks

import sparsewire
from sparsewire.tools.optimize.methods.network import Distributed, Simulated


def messages_of(rank: int) -> list[bytes]:
    """Empty ones, some around the ends of rows, long ones, and long ones that are mostly zeros."""
    lengths = [0, 1, 247, 248, 249, 1000 * (rank % 2), 100_000 if rank == 2 else 0]
    messages = [np.random.default_rng([rank, n]).bytes(n) for n in lengths]
    return [*messages, *(text + bytes(400_000) + text[:rank] for text in messages[-2:])]


def gather_all() -> list[list[bytes]]:
    with sparsewire.init() as comm:
        network = Distributed(comm)
        assert (network.workers, list(network.local)) == (comm.world_size, [comm.rank])
        return [network.all_gather([message]) for message in messages_of(comm.rank)]


def test_every_rank_hears_every_message() -> None:
    wanted = [list(messages) for messages in zip(*map(messages_of, range(4)), strict=True)]
    for heard in run_ranks(4, gather_all):
        assert heard == wanted


def test_simulated_network_checks_the_count() -> None:
    network = Simulated(3)
    assert network.all_gather([b"a", b"", b"ccc"]) == [b"a", b"", b"ccc"]
    with pytest.raises(ValueError, match="3 local workers send 1"):
        network.all_gather([b"a"])
    with pytest.raises(ValueError, match="at least one"):
        Simulated(0)
