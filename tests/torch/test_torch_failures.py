"""Failures: what users see from wait, futures and backward, and that it comes on every rank."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import SURVIVED, assert_others_survived, await_others
from models import FEATURES, batch_of
from ranks import Ranks
from reference import gloo_group
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import sparsewire

NewRanks = Callable[..., Ranks]
DETECTION_S = 20.0


def different_sizes() -> None:
    group = dist.new_group()
    # Numbered from the first that the user calls.
    with pytest.raises(sparsewire.MismatchError, match=r"\(operation 0\)"):
        dist.all_reduce(torch.ones(5 + dist.get_rank()), group=group)


def different_dtypes() -> None:
    group = dist.new_group()
    dtype = torch.float64 if dist.get_rank() else torch.float32
    with pytest.raises(sparsewire.MismatchError):
        dist.all_reduce(torch.ones(5, dtype=dtype), group=group)


def different_operations() -> None:
    group = dist.new_group()
    op = dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM
    with pytest.raises(sparsewire.MismatchError):
        dist.all_reduce(torch.ones(5), op=op, group=group)


@pytest.mark.parametrize("task", [different_sizes, different_dtypes, different_operations])
def test_ranks_that_disagree_all_learn_it(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def group_timeout() -> None:
    group = dist.new_group(timeout=timedelta(seconds=1))
    if dist.get_rank() == 0:
        with pytest.raises(sparsewire.Timeout):
            dist.all_reduce(torch.ones(3), group=group)
    dist.barrier(gloo_group())


def call_timeout() -> None:
    group: Any = dist.new_group()
    if dist.get_rank() == 0:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=0.2)
        with pytest.raises(sparsewire.Timeout):
            group.allreduce([torch.ones(3)], options).wait()
    dist.barrier(gloo_group())


@pytest.mark.parametrize("task", [group_timeout, call_timeout])
def test_timeouts(ranks: Ranks, task: Callable[[], None]) -> None:
    ranks.run(task)


def wait_timeout() -> None:
    """A wait that gives up leaves the operation in flight, so the group stays usable."""
    tensor = torch.ones(3)
    if dist.get_rank() == 0:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        with pytest.raises(sparsewire.Timeout):
            work.wait(timedelta(milliseconds=50))
        assert not work.is_completed()
        dist.barrier(gloo_group())
        work.wait()
    else:
        dist.barrier(gloo_group())
        dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all()


def test_a_wait_that_gives_up(ranks: Ranks) -> None:
    ranks.run(wait_timeout)


def interrupted(wait: str) -> None:
    tensor = torch.ones(3)
    if dist.get_rank() == 0:
        work = dist.all_reduce(tensor, async_op=True)
        waiting = work if wait == "work" else work.get_future().then(lambda done: done.value())
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            waiting.wait()
        dist.barrier(gloo_group())
        waiting.wait()
    else:
        dist.barrier(gloo_group())
        dist.all_reduce(tensor)
    assert tensor.eq(dist.get_world_size()).all()


@pytest.mark.parametrize("wait", ["work", "future"])
def test_ctrl_c_interrupts_a_wait(ranks: Ranks, wait: str) -> None:
    ranks.run(interrupted, wait)


def assert_lost(raising: Callable[[], Any], lost: int) -> None:
    start = time.monotonic()
    with pytest.raises(sparsewire.PeerLost) as caught:
        raising()
    assert caught.value.rank == lost
    assert time.monotonic() - start < DETECTION_S


def all_reduce() -> None:
    dist.all_reduce(torch.ones(1000))


def die_or_wait(lost: int, call: Callable[[], Any]) -> str:
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    assert_lost(call, lost)
    return SURVIVED


def die_or_wait_for_futures(lost: int) -> str:
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    future = dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    chained = future.then(lambda done: done.value())
    assert_lost(future.wait, lost)
    assert_lost(chained.wait, lost)
    assert_lost(lambda: functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 1, lost)
    return SURVIVED


def die_or_train(lost: int) -> str:
    """A model with buffers, which DDP broadcasts in `forward`."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 1), nn.BatchNorm1d(1)))
    model(batch_of(0)).sum().backward()
    await_others()
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    assert_lost(lambda: model(batch_of(1)).sum().backward(), lost)
    return SURVIVED


def die_in_backward(lost: int, hook: Any) -> str:
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    if hook is not None:
        model.register_comm_hook(None, hook)
    for step in range(2):
        model(batch_of(step)).sum().backward()
    loss = model(batch_of(2)).sum()
    await_others()
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    assert_lost(loss.backward, lost)
    return SURVIVED


@pytest.mark.parametrize(("lost", "call"), [(0, all_reduce), (2, dist.barrier)])
def test_a_killed_rank_is_named(new_ranks: NewRanks, lost: int, call: Callable[[], Any]) -> None:
    assert_others_survived(new_ranks(3).outcomes(die_or_wait, lost, call), lost)


def test_a_killed_rank_is_named_by_futures(new_ranks: NewRanks) -> None:
    assert_others_survived(new_ranks(3).outcomes(die_or_wait_for_futures, 1), 1)


@pytest.mark.parametrize("hook", [None, fp16_compress_hook])
def test_a_killed_rank_is_named_by_backward(new_ranks: NewRanks, hook: Any) -> None:
    assert_others_survived(new_ranks(3).outcomes(die_in_backward, 1, hook), 1)


def test_a_killed_rank_is_named_by_a_training_step(new_ranks: NewRanks) -> None:
    assert_others_survived(new_ranks(3).outcomes(die_or_train, 1), 1)


class WrongHook(Exception):
    """What a hook of the user raises."""


def hook_fails() -> None:
    def hook(state, bucket):  # DDP does not know annotations that are text.
        def fail(_: Any) -> None:
            raise WrongHook

        work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(fail)

    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    model.register_comm_hook(None, hook)
    with pytest.raises(WrongHook):
        model(batch_of(0)).sum().backward()


def test_what_a_hook_raises_comes_out_of_backward(ranks: Ranks) -> None:
    ranks.run(hook_fails)


def aborted() -> None:
    group: Any = dist.new_group()
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=group)
    # The abort fails what is in flight on any rank, so the others end theirs first.
    dist.barrier(gloo_group())
    if dist.get_rank() == 0:
        group.abort()
        group.abort()
    with pytest.raises(sparsewire.Error):
        dist.all_reduce(tensor, group=group)
    dist.barrier(gloo_group())


def test_abort_fails_all_ranks(ranks: Ranks) -> None:
    ranks.run(aborted)
