"""Outer optimizers over process groups: replicas of several workers by DDP and FSDP2, several
data-parallel groups in one worker, compiled models, and groups of gloo."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compressing import assert_same_everywhere, group_of, subgroup
from outer_reference import Method, Reference
from outer_threads import flat, loss_of, net, train_step
from ranks import Ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from sparsewire.torch.outer import OuterOptimizer

pytestmark = pytest.mark.timeout(120)

EVERY, STEPS, RATE = 3, 7, 0.05
NESTEROV = partial(SGD, lr=0.7, momentum=0.9, nesterov=True)
WHOLE = ((0, 1, 2, 3, 4),)
WORKERS = 2
SPARSE = "span-top-k:16:64"


def made(model: nn.Module, inner: Any, group: Any, **settings: Any) -> OuterOptimizer:
    settings = {"every": EVERY, "process_group": group, "timeout": 30.0, **settings}
    return OuterOptimizer(model, inner, NESTEROV, **settings)


def mean_step(model: nn.Module, inner: Any, replica: int, step: int) -> None:
    """A step of the mean gradient of a replica's workers."""
    inner.zero_grad()
    for worker in range(WORKERS):
        (loss_of(model, WORKERS * replica + worker, step) / WORKERS).backward()
    inner.step()


def unsharded(compressor: str = "dense") -> Tensor:
    """Two replicas of two workers in one process: the parameters of the first."""
    models = [net(0) for _ in range(2)]
    inners = [SGD(each.parameters(), RATE, momentum=0.5) for each in models]
    method = Method(NESTEROV, EVERY, compressor, fragments=WHOLE)
    reference = Reference(models, inners, method, mean_step)
    reference.train(STEPS)
    return torch.stack([flat(each) for each in models])


def groups_of_two() -> tuple[Any, Any]:
    """Of this rank the workers of its replica, and those with the same part of other replicas."""
    rank = dist.get_rank()
    inside = [subgroup((0, 1)), subgroup((2, 3))]
    across = [subgroup((0, 2)), subgroup((1, 3))]
    return inside[rank // 2], across[rank % 2]


def in_ddp(compressor: str) -> Tensor:
    inside, across = groups_of_two()
    rank = dist.get_rank()
    wrapped = DistributedDataParallel(net(rank // 2), process_group=inside)
    inner = SGD(wrapped.parameters(), RATE, momentum=0.5)
    with made(wrapped, inner, across, replica_group=inside, compressor=compressor) as outer:
        for step in range(STEPS):
            train_step(wrapped, inner, rank, step + 1)
        assert set(outer.state_dict()["shared"]) >= {"0.weight/theta", "4.bias/theta"}
        dist.barrier()
    return flat(wrapped)


@pytest.fixture(scope="module")
def four_ranks() -> Any:
    """Four ranks of this module's tests."""
    ranks = Ranks(4)
    yield ranks
    ranks.close()


@pytest.mark.parametrize("compressor", ["dense", SPARSE])
def test_ddp_inside_a_replica(four_ranks: Ranks, compressor: str) -> None:
    found = four_ranks.run(in_ddp, compressor)
    wanted = unsharded(compressor)
    for replica in range(2):
        first, second = found[2 * replica : 2 * replica + 2]
        assert first.equal(second)
        torch.testing.assert_close(first, wanted[replica], rtol=1e-5, atol=1e-5)


def in_fsdp(fragments: int) -> tuple[Tensor, bool]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    rank = dist.get_rank()
    model = net(0)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    inner = SGD(model.parameters(), RATE, momentum=0.5)
    inside, across = mesh.get_group("shard"), mesh.get_group("replica")
    with made(model, inner, across, replica_group=inside, fragments=fragments) as outer:
        for step in range(STEPS):
            train_step(model, inner, rank, step + 1)
        elements = sum(each.fragment.elements for each in outer._state.fragments)
        dist.barrier()
    whole = torch.cat([each.full_tensor().detach().reshape(-1) for each in model.parameters()])
    return whole, elements < whole.numel()


def test_fsdp2_inside_a_replica_equals_the_unsharded_run(four_ranks: Ranks) -> None:
    found = four_ranks.run(in_fsdp, 1)
    wanted = unsharded()
    for rank, (parameters, is_shard) in enumerate(found):
        assert is_shard
        assert parameters.equal(found[rank // 2 * 2][0])
        torch.testing.assert_close(parameters, wanted[rank // 2], rtol=1e-5, atol=1e-5)


def test_fsdp2_with_fragments_is_alike_on_all_workers(four_ranks: Ranks) -> None:
    found = four_ranks.run(in_fsdp, 2)
    for rank, (parameters, _) in enumerate(found):
        assert parameters.equal(found[rank // 2 * 2][0])
        assert not parameters.equal(flat(net(0)))


class Expert(nn.Module):
    """A part that all replicas share, and an expert that only some have."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = net(0)[:4]
        self.expert = net(0)[4]

    def forward(self, x: Tensor) -> Tensor:
        return self.expert(self.dense(x))


def several_groups(has_two_inners: bool) -> tuple[Tensor, Tensor]:
    """One outer optimizer over all ranks, and one over those that have the same expert."""
    rank = dist.get_rank()
    model = Expert()
    _, pair = groups_of_two()
    inners = [SGD(part.parameters(), RATE) for part in (model.dense, model.expert)]
    one = SGD(model.parameters(), RATE)
    used = inners if has_two_inners else [one]
    with (
        made(model.dense, used[0], None, compressor=SPARSE),
        made(model.expert, used[-1], pair, every=2),
    ):
        for step in range(2 * EVERY):
            model.zero_grad()
            loss_of(model, rank, step).backward()
            for inner in used:
                inner.step()
        dist.barrier()
    return flat(model.dense), flat(model.expert)


@pytest.mark.parametrize("has_two_inners", [True, False])
def test_several_data_parallel_groups_in_a_worker(four_ranks: Ranks, has_two_inners: bool) -> None:
    found = four_ranks.run(several_groups, has_two_inners)
    dense, experts = zip(*found, strict=True)
    assert all(each.equal(dense[0]) for each in dense)
    assert experts[0].equal(experts[2])
    assert experts[1].equal(experts[3])
    assert not experts[0].equal(experts[1])
    assert not dense[0].equal(flat(Expert().dense))


def over(backend: str, is_compiled: bool = False) -> Tensor:
    rank = dist.get_rank()
    model = net(rank)
    if is_compiled:
        model = torch.compile(model, backend="eager")
    inner = SGD(model.parameters(), RATE)
    with made(model, inner, group_of(backend), fragments=2) as outer:
        for step in range(2 * EVERY):
            train_step(model, inner, rank, step + 1)
        outer.sync()
        assert not any("_orig_mod" in name for name in outer.state_dict()["shared"])
        assert_same_everywhere(flat(model))
        dist.barrier()
    return flat(model)


def test_groups_of_gloo_and_sparsewire_give_equal_bits(ranks: Ranks) -> None:
    found = [each for backend in ("gloo", "sparsewire") for each in ranks.run(over, backend)]
    assert all(each.equal(found[0]) for each in found)


def test_a_compiled_model_is_as_it_is_without(ranks: Ranks) -> None:
    plain, compiled = ranks.run(over, "sparsewire"), ranks.run(over, "sparsewire", True)
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def one_after_another() -> list[int]:
    """Outer optimizers on one group, several at a time and again after they have closed."""
    members = []
    for _ in range(2):
        models = [net(seed) for seed in range(2)]
        inners = [SGD(each.parameters(), RATE) for each in models]
        outers = [made(*each, None, every=1) for each in zip(models, inners, strict=True)]
        for model, inner in zip(models, inners, strict=True):
            train_step(model, inner, dist.get_rank(), 1)
            assert_same_everywhere(flat(model))
        dist.barrier()
        for outer in outers:
            members.append(outer.stats()["members"])
            outer.close()
        dist.barrier()
    return members


def test_a_group_has_one_outer_optimizer_after_another(ranks: Ranks) -> None:
    for members in ranks.run(one_after_another):
        assert members == [3] * 4
