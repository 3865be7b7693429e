"""SPARSEWIRE_CUDA: who serves tensors on devices. Gloo stands in for NCCL, which needs GPUs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from device_double import LateEvent, cpu_as_device
from device_groups import double, group_in_mode, operations, path_of, staged_group
from ranks import Ranks

import sparsewire
import sparsewire.torch
from sparsewire.device import choice
from sparsewire.device.choice import PERIOD, SMALLEST, Kind
from sparsewire.device.path_cost import Path, Sample
from sparsewire.options import resolve
from sparsewire.torch.calls.forwarding import InnerBackends

SIZE = 4 * SMALLEST
FULL, NEARLY_EMPTY = "float32 x 262144", "float32 x 262145"


def by_union(nbytes: int, ranks: int, sample: Sample, speeds: Any) -> Path:
    return Path.INNER if sample.union > 0.5 else Path.PACKED


@contextlib.contextmanager
def gloo_for_nccl() -> Iterator[None]:
    """Have `auto` choose between the engine and gloo, by what ranks sampled alone."""
    former, InnerBackends.nccl = InnerBackends.nccl, lambda self, _: self.gloo
    former_choose, choice.choose = choice.choose, by_union
    try:
        yield
    finally:
        InnerBackends.nccl, choice.choose = former, former_choose


def engine_takes(group: Any, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> bool:
    """Whether the engine served an all_reduce; its result is checked."""
    before, element = operations(group), float(tensor[0])
    dist.all_reduce(tensor, op, group=group)
    factor = dist.get_world_size() if op == dist.ReduceOp.SUM else 1
    assert tensor[0] == element * factor
    return operations(group) > before


def chooses() -> None:
    with gloo_for_nccl(), staged_group("cpu", "auto") as group:
        empty = torch.zeros(SIZE + 1)
        empty[0] = 1
        assert engine_takes(group, empty.clone())
        assert engine_takes(group, empty.clone())
        # Whoever samples does so on the engine's way.
        taken = [engine_takes(group, torch.ones(SIZE)) for _ in range(PERIOD + 2)]
        assert taken == [True] + [False] * (PERIOD - 1) + [True, False]
        for tensor, op in (
            (torch.ones(5), dist.ReduceOp.SUM),
            (torch.ones(SIZE), dist.ReduceOp.MAX),
        ):
            assert not engine_takes(group, tensor, op)
        told = torch.full((3,), float(dist.get_rank()))
        before = operations(group)
        dist.broadcast(told, 1, group=group)
        assert told.eq(1).all()
        assert operations(group) == before
        choices = sparsewire.torch.device_choices(group)
        assert (choices[FULL]["path"], choices[NEARLY_EMPTY]["path"]) == ("nccl", "packed")
        assert choices[FULL]["own"] == choices[FULL]["union"] == 1
        assert set(choices[FULL]["predicted_s"]) == {"packed", "dense", "nccl"}
        # Measured, and the same on all ranks.
        speeds = path_of(group).stager.speeds
        everyones: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, speeds)
        assert everyones == [speeds] * len(everyones)
        assert all(math.isfinite(figure) for figure in speeds)


def test_auto_chooses_by_what_ranks_sampled(ranks: Ranks) -> None:
    ranks.run(chooses)


def changes_its_mind() -> None:
    """Also while more collectives are in flight than one sample is good for."""
    with gloo_for_nccl(), staged_group("cpu", "auto") as group:
        tensors = [torch.full((SIZE,), float(i % 40 < 35)) for i in range(3 * PERIOD)]
        tensors = [tensor.index_fill_(0, torch.tensor([1]), 1.0) for tensor in tensors]
        expected = [tensor * dist.get_world_size() for tensor in tensors]
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()
        for tensor, right in zip(tensors, expected, strict=True):
            assert torch.equal(tensor, right)


def test_auto_with_many_in_flight(ranks: Ranks) -> None:
    ranks.run(changes_its_mind)


def shared() -> None:
    with gloo_for_nccl(), cpu_as_device("one for all"), group_in_mode("auto") as group:
        assert all(engine_takes(group, torch.ones(SIZE)) for _ in range(3))
        assert path_of(group).stager.speeds.inner_s == float("inf")


def test_auto_leaves_nccl_out_where_ranks_share_a_device(ranks: Ranks) -> None:
    ranks.run(shared)


def connect(group: dist.ProcessGroup) -> None:
    """What fails next on one rank must not overtake this on another."""
    dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def fails_in_the_courier(mode: str) -> None:
    """Its first wait for the device fails, before it comes to the sample."""
    with gloo_for_nccl(), staged_group("cpu", mode, timeout=timedelta(seconds=5)) as group:
        connect(group)
        broken = patch.object(LateEvent, "synchronize", side_effect=RuntimeError("misaligned"))
        tensors, fails = [torch.ones(SIZE), torch.ones(SIZE)], r"cannot stage .* misaligned"
        with broken, pytest.raises(sparsewire.Error, match=fails):
            dist.all_reduce(tensors[0], group=group, async_op=True).wait()
        # The next one wants its choice.
        with pytest.raises(sparsewire.Error, match=fails):
            dist.all_reduce(tensors[1], group=group, async_op=True).wait()


@pytest.mark.parametrize("mode", ["engine", "auto"])
def test_a_choice_whose_call_fails_before_the_sample(ranks: Ranks, mode: str) -> None:
    ranks.run(fails_in_the_courier, mode)


def undecided(mode: str) -> None:
    """The call that is to sample fails before it does; those behind it want its choice."""
    with gloo_for_nccl(), staged_group("cpu", mode) as group:
        connect(group)
        broken = patch.object(double(), "current", side_effect=MemoryError("no stream"))
        with broken, pytest.raises(MemoryError):
            dist.all_reduce(torch.ones(SIZE), group=group)
        for _ in range(2):
            work = dist.all_reduce(torch.ones(SIZE), group=group, async_op=True)
            with pytest.raises(sparsewire.Error, match=r"cannot stage .* no stream"):
                work.wait()


@pytest.mark.parametrize("mode", ["engine", "auto"])
def test_a_choice_that_fails_before_it_is_made(ranks: Ranks, mode: str) -> None:
    ranks.run(undecided, mode)


def late_choice() -> None:
    with gloo_for_nccl(), staged_group("cpu", "auto", timeout=timedelta(seconds=2)) as group:
        dist.all_reduce(torch.ones(1), group=group)
        path = path_of(group)
        limited = pytest.raises(sparsewire.Timeout, match=r"not chosen who serves .* after 2 s")
        with patch.object(path.stager.chooser, "decide"):
            dist.all_reduce(torch.ones(SIZE), group=group, async_op=True)
            with limited:
                dist.all_reduce(torch.ones(SIZE), group=group, async_op=True)
        # As whoever decides finds out in the end.
        turn = path.stager.chooser.take_turn(Kind(torch.float32, SIZE))
        turn.decision.set_exception(sparsewire.Error("too late"))


def test_a_choice_that_does_not_come(ranks: Ranks) -> None:
    ranks.run(late_choice)


def inner_only() -> None:
    with cpu_as_device(), group_in_mode("nccl") as group:
        assert not engine_takes(group, torch.ones(SIZE))
        assert path_of(group) is None
        assert sparsewire.torch.device_choices(group) == {}


def test_nccl_leaves_the_engine_out(ranks: Ranks) -> None:
    ranks.run(inner_only)


def test_the_setting() -> None:
    job = {"RANK": "0", "WORLD_SIZE": "1"}
    assert resolve(job).cuda == "nccl"
    assert resolve({**job, "SPARSEWIRE_CUDA": "auto"}).cuda == "auto"
    with pytest.raises(ValueError, match="SPARSEWIRE_CUDA must be nccl, engine or auto"):
        resolve({**job, "SPARSEWIRE_CUDA": "gpu"})


def differ_once(mode: str, in_flight: int) -> None:
    """One rank's tensor has another size; then all are right, and must agree on who samples."""
    with gloo_for_nccl(), staged_group("cpu", mode, timeout=timedelta(seconds=5)) as group:
        dist.all_reduce(torch.ones(1), group=group)
        sizes = [SIZE + 1 + (dist.get_rank() == 1)] + in_flight * [SIZE + 1]
        works = [dist.all_reduce(torch.ones(size), group=group, async_op=True) for size in sizes]
        for work in works:
            with contextlib.suppress(sparsewire.MismatchError):
                work.wait()
        assert isinstance(works[0].exception(), sparsewire.MismatchError)
        for _ in range(3):
            tensor = torch.ones(SIZE + 1)
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(dist.get_world_size()).all()


@pytest.mark.parametrize(("mode", "in_flight"), [("engine", 0), ("engine", 4), ("auto", 0)])
def test_ranks_that_differed_once_agree_again(ranks: Ranks, mode: str, in_flight: int) -> None:
    ranks.run(differ_once, mode, in_flight)
