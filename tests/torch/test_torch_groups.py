"""Life of process groups: registration, subgroups, composite backends, destruction."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import RankFailed, Ranks

import sparsewire.torch
from sparsewire.meeting.mesh import shared_mesh
from sparsewire.torch.backend import TAKES_BACKENDS, member_of
from sparsewire.torch.calls.forwarding import InnerBackends

NewRanks = Callable[..., Ranks]


def test_registering_twice_is_harmless() -> None:
    sparsewire.torch.register()
    assert "SPARSEWIRE" in dist.Backend._plugins


def identity() -> None:
    group: Any = dist.group.WORLD
    assert dist.get_backend() == "sparsewire"
    assert group.name() == group._get_backend_name() == "sparsewire"
    assert dist.get_process_group_ranks(group) == list(range(dist.get_world_size()))
    assert dist.get_group_rank(group, dist.get_rank()) == group.rank()
    assert group._device_types == [torch.device("cpu")]
    group.get_group_store().set(f"key {group.rank()}", "value")
    assert isinstance(group._get_sequence_number_for_group(), int)


def test_names_and_ranks(ranks: Ranks) -> None:
    ranks.run(identity)


def count_connections() -> None:
    before = shared_mesh.connections()
    groups = [dist.new_group() for _ in range(5)]
    for group in groups:
        x = torch.ones(300_000)
        dist.all_reduce(x, group=group)
        assert x[0] == dist.get_world_size()
    assert shared_mesh.connections() == before == [dist.get_world_size() - 1]
    for group in groups:
        dist.destroy_process_group(group)
    x = torch.ones(300_000)
    dist.all_reduce(x)
    assert x[0] == dist.get_world_size()


def test_groups_share_the_connections_of_the_first(ranks: Ranks) -> None:
    ranks.run(count_connections)


def overlapping_subgroups() -> None:
    rank = dist.get_rank()
    members = [[0, 1], [1, 2], [0, 2], [2]]
    groups = [dist.new_group(group) for group in members]
    for group, ranks in zip(groups, members, strict=True):
        if rank not in ranks:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert dist.get_backend(group) == "sparsewire"
        tensor = torch.tensor([10.0**rank])
        works = [dist.all_reduce(tensor, group=group, async_op=True)]
        whole = torch.ones(1)
        works[0].wait()
        assert tensor.item() == sum(10.0**member for member in ranks)
        dist.broadcast(whole, src=ranks[0], group=group)
    for group in groups:
        dist.destroy_process_group(group)
    dist.barrier()


def test_subgroups(ranks: Ranks) -> None:
    ranks.run(overlapping_subgroups)


def split_evenly() -> None:
    mine, groups = dist.new_subgroups_by_enumeration([[0, 2], [1]])
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == dist.get_world_size(mine)
    assert len(groups) == 2


def test_subgroups_by_enumeration(ranks: Ranks) -> None:
    ranks.run(split_evenly)


def with_options() -> None:
    with pytest.raises(TypeError, match="pg_options"):
        dist.new_group([0, 1, 2], pg_options=dist.ProcessGroup.BackendType.GLOO)


def test_options_are_refused(ranks: Ranks) -> None:
    ranks.run(with_options)


def timeouts() -> None:
    group = dist.new_group(timeout=timedelta(seconds=17))
    member = member_of(group)
    assert member._timeout == timedelta(seconds=17)
    group.set_timeout(timedelta(seconds=18))
    assert member._timeout == timedelta(seconds=18)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=19), group)
    assert member._timeout == timedelta(seconds=19)
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=19)
    dist.destroy_process_group(group)


def test_timeouts(ranks: Ranks) -> None:
    ranks.run(timeouts)


def debugging_calls() -> None:
    dist.group.WORLD.monitored_barrier(timedelta(seconds=10))
    if TAKES_BACKENDS:
        dist.monitored_barrier()
    else:
        with pytest.raises(ValueError, match="GLOO"):
            dist.monitored_barrier()


def test_monitored_barrier(ranks: Ranks) -> None:
    ranks.run(debugging_calls)


def one_rank_passes_by() -> None:
    group: Any = dist.new_group(timeout=timedelta(seconds=40))
    if dist.get_rank() != 1:
        limit = timedelta(seconds=1 if dist.get_rank() == 0 else 20)
        expected = "Rank 1 failed to pass" if dist.get_rank() == 0 else "successfully reached"
        with pytest.raises(sparsewire.Timeout, match=expected):
            group.monitored_barrier(limit)
    dist.destroy_process_group(group)


def test_a_monitored_barrier_names_a_rank_that_never_connected(ranks: Ranks) -> None:
    """Though gloo would wait for the connection until the group's timeout."""
    ranks.run(one_rank_passes_by)


def rank_0_is_late() -> None:
    group: Any = dist.new_group(timeout=timedelta(seconds=40))
    if dist.get_rank() == 0:
        time.sleep(1)
    group.monitored_barrier(timedelta(seconds=0.3))
    dist.destroy_process_group(group)


def test_ranks_wait_for_a_late_rank_0_at_a_monitored_barrier(ranks: Ranks) -> None:
    """All of them pass: it is rank 0 that minds the limit."""
    ranks.run(rank_0_is_late)


def barrier_beside_the_stores_users() -> None:
    """Rank 0 comes to the barrier behind a gather that connects over the store."""
    tensor, outputs = torch.ones(1), [torch.empty(1) for _ in range(dist.get_world_size())]
    group: Any = dist.new_group(timeout=timedelta(seconds=20))
    gather = dist.all_gather(outputs, tensor, group=group, async_op=True)
    if dist.get_rank() == 0:
        gather.wait()
    group.monitored_barrier()
    gather.wait()
    assert [output.item() for output in outputs] == [1.0] * dist.get_world_size()
    dist.destroy_process_group(group)


def test_a_monitored_barrier_leaves_the_store_to_others(ranks: Ranks) -> None:
    ranks.run(barrier_beside_the_stores_users)


def destroy_and_start_again() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    group: Any = dist.group.WORLD
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    future.wait()
    dist.destroy_process_group()
    group.shutdown()
    assert future.then(lambda done: done.value()[0].item()).wait() == size
    with pytest.raises(sparsewire.Error):
        group.allreduce([torch.ones(1)]).wait()
    dist.init_process_group("sparsewire", store=store, rank=rank, world_size=size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size


def test_destroying_is_idempotent_and_frees_the_name(new_ranks: NewRanks) -> None:
    new_ranks(2).run(destroy_and_start_again)


@pytest.mark.parametrize("backend", ["cpu:gloo,cuda:sparsewire", "cpu:sparsewire,cuda:gloo"])
def test_composite_backends(new_ranks: NewRanks, backend: str) -> None:
    new_ranks(2, backend).run(reduce_and_broadcast, backend)


def reduce_and_broadcast(backend: str) -> None:
    before = sparsewire.torch.stats()["operations"]
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, src=0)
    assert tensor.eq(dist.get_world_size()).all()
    # Before torch 2.14, sparsewire serves every device as soon as it serves one.
    serves_cpu = "cpu:sparsewire" in backend or not TAKES_BACKENDS
    assert sparsewire.torch.stats()["operations"] == before + 2 * serves_cpu
    assert sparsewire.torch.status()["in_flight"] == 0
    assert not sparsewire.torch.status()["silent"]


def on_loopback() -> None:
    os.environ["SPARSEWIRE_IFNAME"] = "lo"
    gathered = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.ones(2), group=dist.new_group())
    assert all(tensor.eq(1).all() for tensor in gathered)


def test_the_named_interface_is_for_the_inner_backend_too(new_ranks: NewRanks) -> None:
    new_ranks(2).run(on_loopback)


def send_ahead_of_collectives() -> None:
    """In new groups: which end of a pair of gloo waits for the other is a matter of its ports."""
    for _ in range(6):
        group = dist.new_group()
        rank = dist.get_rank()
        tensors = [torch.full((3,), 1.0 + i if rank == 0 else 0.0) for i in range(3)]
        works = [dist.isend(tensor, 1, group=group) for tensor in tensors] if rank == 0 else []
        dist.all_reduce(torch.ones(3), group=group)
        if rank == 1:
            for tensor in tensors:
                dist.recv(tensor, 0, group=group)
            assert [tensor[0].item() for tensor in tensors] == [1, 2, 3]
        for work in works:
            assert work is not None
            work.wait()
        dist.destroy_process_group(group)


def test_sending_does_not_wait_for_a_receiver_in_a_collective(ranks: Ranks) -> None:
    ranks.run(send_ahead_of_collectives)


def test_inner_backends_are_made_without_the_other_ranks() -> None:
    inner = InnerBackends(dist.HashStore(), 0, 3, timedelta(seconds=20))
    assert inner.gloo.size() == 3
    inner.shutdown()


FORGETFUL = """
import torch, torch.distributed as dist, sparsewire.torch
dist.init_process_group("sparsewire", store=dist.HashStore(), rank=0, world_size=1)
future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
print(future.then(lambda done: done.value()[0].sum().item()).wait())
"""


@pytest.mark.timeout(180)
def test_a_program_that_does_not_destroy_its_group_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    # Gloo of torch 2.9 writes a line of its own before it.
    assert done.stdout.splitlines()[-1] == "3.0"


def test_ranks_that_cannot_join_say_why(new_ranks: NewRanks) -> None:
    with pytest.raises(RankFailed, match="nonsense"):
        new_ranks(1, "nonsense").run(dist.get_rank)
