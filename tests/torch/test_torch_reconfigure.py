"""Groups whose members change while they live, as torch's own tests of gloo ask it of a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Failure, Ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sparsewire
from sparsewire.errors import InputError, MismatchError
from sparsewire.torch import reconfiguring
from sparsewire.torch.backend import TAKES_BACKENDS, member_of

SIZE = 3
LIMIT = timedelta(seconds=20)
SHORT = timedelta(seconds=0.5)
NewRanks = Callable[..., Ranks]

from_2_14 = pytest.mark.skipif(not TAKES_BACKENDS, reason="torch before 2.14")


def begin(place: str) -> tuple[Any, int]:
    """In place of the group that ranks have: one without members, in a part of the store."""
    part = dist.PrefixStore(place, dist.distributed_c10d._get_default_store())
    rank = part.add("begun", 1) - 1
    dist.destroy_process_group()
    dist.init_process_group(
        "sparsewire",
        store=part,
        rank=rank,
        world_size=SIZE,
        timeout=LIMIT,
        enable_reconfigure=True,
    )
    return part, rank


def exchanged(part: Any, step: str, rank: int, others: range = range(SIZE)) -> list[str]:
    part.set(f"{step}/{rank}", dist._get_reconfigure_handle())
    return [part.get(f"{step}/{other}").decode() for other in others]


def change(uuid: int, handles: list[str], timeout: timedelta = LIMIT) -> None:
    assert dist._reconfigure(uuid, handles, timeout=timeout).wait()


def total() -> float:
    tensor = torch.full((4,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    return tensor[0].item()


@pytest.fixture(scope="module")
def reconfigurable() -> Iterator[Ranks]:
    ranks = Ranks(SIZE)
    yield ranks
    ranks.close()


def nobody_yet() -> None:
    _, rank = begin("nobody")
    assert dist._supports_reconfigure()
    assert (dist.get_rank(), dist.get_world_size()) == (rank, SIZE)
    with pytest.raises(sparsewire.Error, match="_reconfigure"):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(sparsewire.Error, match="_reconfigure"):
        sparsewire.torch.stats()
    assert dist.get_backend_impl().get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS


@from_2_14
def test_before_the_first_members(reconfigurable: Ranks) -> None:
    reconfigurable.run(nobody_yet)


def in_another_order() -> None:
    part, rank = begin("order")
    handles = exchanged(part, "first", rank)
    change(1, handles[::-1])
    assert (dist.get_rank(), dist.get_world_size()) == (SIZE - 1 - rank, SIZE)
    assert total() == 6
    assert sparsewire.torch.stats()["operations"] > 0
    right, left = (dist.get_rank() + 1) % SIZE, (dist.get_rank() - 1) % SIZE
    got = torch.zeros(2)
    calls = [
        dist.P2POp(dist.isend, torch.full((2,), dist.get_rank() * 1.0), right),
        dist.P2POp(dist.irecv, got, left),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert got.eq(left).all()


@from_2_14
def test_ranks_are_places_in_the_list(reconfigurable: Ranks) -> None:
    reconfigurable.run(in_another_order)


def trained() -> None:
    part, rank = begin("trained")
    change(1, exchanged(part, "first", rank))
    if rank == 0:
        return
    change(2, exchanged(part, "second", rank, range(1, SIZE)))
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    model(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
    gradient = model.module.weight.grad
    assert gradient is not None
    assert gradient.item() == 1.5


@from_2_14
def test_training_divides_by_the_present_size(reconfigurable: Ranks) -> None:
    reconfigurable.run(trained)


def without_the_middle() -> None:
    part, rank = begin("middle")
    handles = exchanged(part, "first", rank)
    change(1, handles)
    again = exchanged(part, "second", rank)
    assert not set(handles) & set(again)
    if rank == 1:
        with pytest.raises(sparsewire.Error):
            total()
        assert (dist.get_rank(), dist.get_world_size()) == (1, SIZE)
    else:
        change(2, [again[0], again[2]])
        assert (dist.get_rank(), dist.get_world_size()) == (rank // 2, 2)
        assert total() == 3
    third = exchanged(part, "third", rank)
    assert [third[k] == again[k] for k in range(SIZE)] == [False, True, False]
    change(3, third)
    assert total() == 6


@from_2_14
def test_a_rank_is_left_out_and_comes_back(reconfigurable: Ranks) -> None:
    reconfigurable.run(without_the_middle)


def alone_and_together() -> None:
    part, rank = begin("alone")
    change(10 + rank, [dist._get_reconfigure_handle()])
    assert (dist.get_rank(), dist.get_world_size(), total()) == (0, 1, 1)
    handles = exchanged(part, "first", rank)
    assert dist._reconfigure(20, set(handles), timeout=LIMIT).wait()
    assert dist.get_rank() == sorted(handles).index(handles[rank])
    assert total() == 6


@from_2_14
def test_groups_merge_and_sets_are_sorted(reconfigurable: Ranks) -> None:
    reconfigurable.run(alone_and_together)


def one_does_not_come() -> None:
    part, rank = begin("absent")
    change(1, exchanged(part, "first", rank))
    handles = exchanged(part, "second", rank)
    if rank != 2:
        with pytest.raises(sparsewire.Timeout):
            change(2, handles, SHORT)
        assert dist._get_reconfigure_handle() == handles[rank]
    part.set(f"failed/{rank}", "")
    part.wait([f"failed/{other}" for other in range(SIZE)])
    assert total() == 6
    if rank != 2:
        with pytest.raises(InputError, match="already used"):
            change(2, handles, SHORT)
    change(3, handles)
    assert total() == 6


@from_2_14
def test_the_former_group_is_kept_if_a_member_does_not_come(reconfigurable: Ranks) -> None:
    reconfigurable.run(one_does_not_come)


def other_members() -> None:
    part, rank = begin("others")
    handles = exchanged(part, "first", rank)
    with pytest.raises((MismatchError, sparsewire.Timeout)) as raised:
        change(1, handles if rank == 0 else handles[::-1], SHORT)
    part.set(f"raised/{rank}", raised.type.__name__)
    assert "MismatchError" in {part.get(f"raised/{other}").decode() for other in range(SIZE)}
    change(2, handles)
    assert total() == 6


@from_2_14
def test_ranks_that_disagree_about_the_members(reconfigurable: Ranks) -> None:
    reconfigurable.run(other_members)


def used_before() -> None:
    _, rank = begin("used")
    change(1 + rank, [dist._get_reconfigure_handle()])
    with pytest.raises(MismatchError, match="already used"):
        change(1 + rank, [dist._get_reconfigure_handle()])
    assert total() == 1


@from_2_14
def test_a_uuid_is_used_once(reconfigurable: Ranks) -> None:
    reconfigurable.run(used_before)


def hooks_and_abort() -> None:
    part, rank = begin("abort")
    ran: list[int] = []
    group: Any = dist.group.WORLD
    group.register_abort_hook(5, lambda: ran.append(rank))
    change(1, exchanged(part, "first", rank))
    handles = exchanged(part, "second", rank)
    dist.get_backend_impl().abort()
    assert ran == [rank]
    change(2, handles)
    assert dist.get_backend_impl().get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    assert total() == 6
    exchanged(part, "third", rank)
    dist.get_backend_impl().abort()
    assert ran == [rank, rank]


@from_2_14
def test_a_group_goes_on_after_abort(reconfigurable: Ranks) -> None:
    reconfigurable.run(hooks_and_abort)


def lose_one() -> float:
    part, rank = begin("lost")
    change(1, exchanged(part, "first", rank))
    if rank == 1:
        os._exit(1)
    with pytest.raises(sparsewire.PeerLost, match="rank 1"):
        total()
    part.set(f"second/{rank}", dist._get_reconfigure_handle())
    change(2, [part.get(f"second/{other}").decode() for other in (0, 2)])
    assert member_of(None) is not None
    return total()


@from_2_14
def test_the_others_go_on_without_a_lost_rank(new_ranks: NewRanks) -> None:
    outcomes = new_ranks(SIZE).outcomes(lose_one)
    assert [each for each in outcomes if not isinstance(each, Failure)] == [3, 3], outcomes


@from_2_14
def test_groups_of_several_backends_are_refused() -> None:
    with pytest.raises(TypeError, match="sparsewire"):
        dist.init_process_group(
            "cpu:sparsewire,cuda:gloo",
            store=dist.HashStore(),
            rank=0,
            world_size=1,
            enable_reconfigure=True,
        )


OWN, OTHER = "sparsewire:" + "0" * 16, "sparsewire:" + "1" * 16


@pytest.mark.parametrize(
    ("handles", "message"),
    [
        ([], "not among"),
        ([OTHER], "not among"),
        ([OWN, OTHER, OWN], "twice"),
        ([OWN, "gloo:0:-1:0:"], "_get_reconfigure_handle"),
        ([OWN, f"{OTHER}0"], "_get_reconfigure_handle"),
        ([OWN] * (reconfiguring.MAX_MEMBERS + 1), "over"),
    ],
)
def test_unusable_handles(handles: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reconfiguring._ordered(handles, OWN)


def test_a_claim_holds_for_the_members_that_it_names() -> None:
    place = dist.HashStore()
    reconfiguring._claimed(place, 1, [OWN, OTHER], OWN).set("key", "value")
    assert reconfiguring._claimed(place, 1, [OWN, OTHER], OTHER).get("key") == b"value"
    with pytest.raises(MismatchError, match="already used"):
        reconfiguring._claimed(place, 1, [OTHER, OWN], "sparsewire:" + "2" * 16)
    with pytest.raises(InputError, match="already used"):
        reconfiguring._claimed(place, 1, [OWN, OTHER], OWN)
    assert not reconfiguring._claimed(place, 2, [OWN], OWN).check(["key"])
