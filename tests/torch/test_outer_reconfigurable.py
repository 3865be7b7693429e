"""A group of torch's that follows the members of rounds, on torch 2.14 and newer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from outer_threads import net, shared, train_step
from ranks import Ranks

from sparsewire.errors import InputError
from sparsewire.torch.backend import TAKES_BACKENDS
from sparsewire.torch.outer import OuterOptimizer, StoreMembership
from sparsewire.torch.outer.membership.reconfigurable import ReconfigurableMembership

SIZE = 3


def rounds_and_a_group(backend: str) -> tuple[Any, Any, bytes, float]:
    """The last rank leaves after two rounds; the others' group has two members then."""
    store = dist.distributed_c10d._get_default_store()
    part = dist.PrefixStore("follows", store)
    names = [str(rank) for rank in range(SIZE)]
    rank = dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group(
        backend, store=part, rank=rank, world_size=SIZE, enable_reconfigure=True
    )
    who = StoreMembership(dist.PrefixStore("who", part), names[rank], SIZE, first=names)
    model = net(rank)
    inner = torch.optim.SGD(model.parameters(), 0.05)
    membership = ReconfigurableMembership(who)
    optimizer = OuterOptimizer(model, inner, every=2, membership=membership, timeout=20.0)
    before = dist.get_rank(), dist.get_world_size()
    for step in range(4):
        train_step(model, inner, rank, step)
    if rank == SIZE - 1:
        optimizer.leave()
        return before, None, b"", 0.0
    while optimizer.stats()["members"] == SIZE:
        train_step(model, inner, rank, step)
    optimizer.sync()
    tensor = torch.full((1,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    now = dist.get_rank(), dist.get_world_size()
    return before, now, shared(optimizer), tensor.item()


@pytest.mark.skipif(not TAKES_BACKENDS, reason="torch before 2.14")
@pytest.mark.parametrize("backend", ["sparsewire", "gloo"])
def test_the_group_follows(backend: str) -> None:
    ranks = Ranks(SIZE)
    try:
        first, second, last = ranks.run(rounds_and_a_group, backend)
    finally:
        ranks.close()
    assert [first[0], second[0], last[0]] == [(rank, SIZE) for rank in range(SIZE)]
    assert [first[1], second[1]] == [(0, 2), (1, 2)]
    assert first[2] == second[2]
    assert first[3] == second[3] == 3


def test_other_groups_are_refused() -> None:
    who = StoreMembership(dist.HashStore(), "0", 1, first=["0"])
    with pytest.raises(InputError, match="enable_reconfigure"):
        ReconfigurableMembership(who, dist.ProcessGroup(0, 1))
