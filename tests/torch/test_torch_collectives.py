"""Every other collective of torch.distributed, compared with gloo in the same processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from reference import assert_like_gloo

from sparsewire.torch.backend import member_of

Body = Callable[[Any], Any]


def mine(size: int = 4) -> torch.Tensor:
    return torch.arange(float(size)) + 10 * dist.get_rank()


def empty(size: int = 4) -> torch.Tensor:
    return torch.full((size,), -1.0)


def world() -> int:
    return dist.get_world_size()


def broadcast(group: Any) -> torch.Tensor:
    tensor = mine()
    dist.broadcast(tensor, src=1, group=group)
    return tensor


def reduce(group: Any) -> torch.Tensor:
    tensor = mine()
    dist.reduce(tensor, dst=1, group=group)
    return tensor if dist.get_rank() == 1 else empty()


def all_gather(group: Any) -> list[torch.Tensor]:
    tensors = [empty() for _ in range(world())]
    dist.all_gather(tensors, mine(), group=group)
    return tensors


def all_gather_into_tensor(group: Any) -> torch.Tensor:
    output = empty(4 * world())
    dist.all_gather_into_tensor(output, mine(), group=group)
    return output


def gather(group: Any) -> list[torch.Tensor]:
    tensors = [empty() for _ in range(world())] if dist.get_rank() == 0 else None
    dist.gather(mine(), tensors, dst=0, group=group)
    return tensors or []


def scatter(group: Any) -> torch.Tensor:
    output = empty()
    inputs = [mine() + i for i in range(world())] if dist.get_rank() == 2 else None
    dist.scatter(output, inputs, src=2, group=group)
    return output


def reduce_scatter(group: Any) -> torch.Tensor:
    output = empty()
    dist.reduce_scatter(output, [mine() + i for i in range(world())], group=group)
    return output


def reduce_scatter_tensor(group: Any) -> torch.Tensor:
    output = empty()
    dist.reduce_scatter_tensor(output, mine(4 * world()), group=group)
    return output


def all_to_all(group: Any) -> list[torch.Tensor]:
    outputs = [empty() for _ in range(world())]
    dist.all_to_all(outputs, [mine() + i for i in range(world())], group=group)
    return outputs


def all_to_all_single(group: Any) -> torch.Tensor:
    output = empty(2 * world())
    dist.all_to_all_single(output, mine(2 * world()), group=group)
    return output


def uneven_all_to_all_single(group: Any) -> torch.Tensor:
    rank = dist.get_rank()
    output = empty((rank + 1) * world())
    dist.all_to_all_single(
        output,
        mine(sum(range(1, world() + 1))),
        output_split_sizes=[rank + 1] * world(),
        input_split_sizes=list(range(1, world() + 1)),
        group=group,
    )
    return output


def send_and_receive(group: Any) -> torch.Tensor:
    tensor = mine()
    if dist.get_rank() == 0:
        dist.send(tensor, dst=1, group=group)
    elif dist.get_rank() == 1:
        dist.recv(tensor, src=0, group=group, tag=0)
    return tensor


def receive_from_any(group: Any) -> tuple[torch.Tensor, int]:
    tensor, source = mine(), -1
    if dist.get_rank() == 2:
        dist.send(tensor, dst=1, group=group, tag=5)
    elif dist.get_rank() == 1:
        source = dist.recv(tensor, group=group, tag=5)
    return tensor, source


def send_and_receive_asynchronously(group: Any) -> torch.Tensor:
    rank, tensor = dist.get_rank(), empty()
    works = [
        dist.isend(mine(), dst=(rank + 1) % world(), group=group),
        dist.irecv(tensor, src=(rank - 1) % world(), group=group),
    ]
    for work in works:
        assert work is not None
        work.wait()
    return tensor


def send_and_receive_in_a_batch(group: Any) -> torch.Tensor:
    rank, tensor = dist.get_rank(), empty()
    operations = [
        dist.P2POp(dist.isend, mine(), (rank + 1) % world(), group=group),
        dist.P2POp(dist.irecv, tensor, (rank - 1) % world(), group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return tensor


def objects(group: Any) -> list[Any]:
    gathered = [None] * world()
    dist.all_gather_object(gathered, {"rank": dist.get_rank()}, group=group)
    broadcasted = [dist.get_rank(), 2]
    dist.broadcast_object_list(broadcasted, src=1, group=group)
    scattered: list[Any] = [None]
    inputs = [7, 8, 9] if dist.get_rank() == 0 else None
    dist.scatter_object_list(scattered, inputs, src=0, group=group)
    collected = [None] * world() if dist.get_rank() == 0 else None
    dist.gather_object(dist.get_rank(), collected, dst=0, group=group)
    return [gathered, broadcasted, scattered, collected or []]


def barriers(group: Any) -> int:
    dist.barrier(group=group)
    work = dist.barrier(group=group, async_op=True)
    assert work is not None
    work.wait()
    return 0


def gather_coalesced(group: Any) -> list[Any]:
    outputs = [[empty(2), empty(3)] for _ in range(world())]
    group.allgather_coalesced(outputs, [mine(2), mine(3)]).wait()
    return outputs


def asynchronous(group: Any) -> list[Any]:
    gathered = [empty() for _ in range(world())]
    tensor = mine()
    works = [
        dist.broadcast(tensor, src=0, group=group, async_op=True),
        dist.all_gather(gathered, mine(), group=group, async_op=True),
    ]
    for work in works:
        assert work is not None
        work.get_future().wait()
        work.wait()
    return [tensor, gathered]


BODIES: list[Body] = [
    broadcast,
    reduce,
    all_gather,
    all_gather_into_tensor,
    gather,
    scatter,
    reduce_scatter,
    reduce_scatter_tensor,
    all_to_all,
    all_to_all_single,
    uneven_all_to_all_single,
    send_and_receive,
    receive_from_any,
    send_and_receive_asynchronously,
    send_and_receive_in_a_batch,
    objects,
    barriers,
    gather_coalesced,
    asynchronous,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_same_as_gloo(ranks: Ranks, body: Body) -> None:
    ranks.run(assert_like_gloo, body)


def methods_of_the_group() -> None:
    """The names that torch 2.13 renamed, old and new, which only the group itself has."""
    group: Any = dist.group.WORLD
    gathered, scattered = mine(4 * world()), mine(4)
    dist.all_gather_into_tensor(gathered, mine())
    dist.reduce_scatter_tensor(scattered, mine(4 * world()))
    for name in ("_allgather_base", "all_gather_single"):
        output = empty(4 * world())
        getattr(group, name)(output, mine()).wait()
        assert output.equal(gathered)
    for name in ("_reduce_scatter_base", "reduce_scatter_single"):
        output = empty()
        getattr(group, name)(output, mine(4 * world()), dist.ReduceScatterOptions()).wait()
        assert output.equal(scattered)
    for name in ("alltoall_base", "all_to_all_single"):
        output = empty(world())
        getattr(group, name)(output, torch.full((world(),), 1.0), [], []).wait()
        assert output.eq(1).all()
    for name in ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"):
        outputs = [empty(4 * world()), empty(4 * world())]
        work = getattr(group, name)(outputs, [mine(), mine()])
        work.wait()
        assert all(output.equal(gathered) for output in outputs)
    for name in ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"):
        outputs = [empty(), empty()]
        work = getattr(group, name)(outputs, [mine(4 * world()), mine(4 * world())])
        assert work.get_future().wait() == outputs
        assert all(output.equal(scattered) for output in outputs)


def test_old_and_new_names(ranks: Ranks) -> None:
    ranks.run(methods_of_the_group)


def collectives_left_to_torch() -> list[str]:
    """Methods of both torch's groups and its backends that return works and are not ours."""
    kinds = type(member_of(None)).__mro__
    ours = {
        name for kind in kinds if kind.__module__.startswith("sparsewire") for name in vars(kind)
    }
    both = set(vars(dist.ProcessGroup)) & set(vars(torch._C._distributed_c10d.Backend))
    works = {name for name in both if "Work" in (getattr(dist.ProcessGroup, name).__doc__ or "")}
    assert {"broadcast", "allreduce"} <= works & ours
    return sorted(works - ours)


def test_every_collective_is_overridden(ranks: Ranks) -> None:
    """Torch's own versions would call back into the group, and could deadlock."""
    assert set(ranks.run(collectives_left_to_torch)[0]) <= {
        "reconfigure",
        "_register_on_completion_hook",
    }


def many_of_everything(rounds: int) -> None:
    for _ in range(rounds):
        for body in (broadcast, all_gather, reduce_scatter_tensor, scatter, gather, reduce):
            body(dist.group.WORLD)
        dist.all_reduce(mine())


def test_hundreds_of_calls_do_not_deadlock(ranks: Ranks) -> None:
    ranks.run(many_of_everything, 150)
