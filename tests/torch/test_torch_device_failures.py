"""What ends collectives on devices before their time: all ranks hear why, and memory returns."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import DEVICES, always, assert_nothing_lent, double, staged_group
from lost_rank import SURVIVED, assert_others_survived, await_others
from ranks import Ranks

import sparsewire
from sparsewire.device.choice import SMALLEST
from sparsewire.device.path_cost import Path

NewRanks = Callable[..., Ranks]
PATHS = [Path.PACKED, Path.DENSE]


def cannot_stage(path: Path) -> None:
    with always(path), staged_group("cpu") as group:
        dist.all_reduce(torch.ones(2 * SMALLEST), group=group)
        if dist.get_rank() == 1:
            double().failing = MemoryError("the device is full")
        works = [
            dist.all_reduce(torch.ones(2 * SMALLEST), group=group, async_op=True) for _ in range(3)
        ]
        for work in works:
            with pytest.raises(sparsewire.Error, match=r"rank 1 cannot stage .* device is full"):
                work.wait()
            assert work.is_completed()
            assert isinstance(work.exception(), sparsewire.Error)
        with pytest.raises(sparsewire.Error, match="rank 1 cannot stage"):
            works[0].get_future().wait()


@pytest.mark.parametrize("path", PATHS)
def test_a_rank_that_cannot_stage(ranks: Ranks, path: Path) -> None:
    ranks.run(cannot_stage, path)


def lost_in_flight(device: str, path: Path) -> str:
    with always(path), staged_group(device) as group:
        tensors = [torch.ones(40 * SMALLEST, device=device) for _ in range(4)]
        dist.all_reduce(tensors[0], group=group)
        await_others()
        if dist.get_rank() == 1:
            dist.all_reduce(tensors[0], group=group, async_op=True)
            os.kill(os.getpid(), signal.SIGKILL)
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        for work in works[1:]:
            with pytest.raises(sparsewire.PeerLost) as caught:
                work.wait()
            assert caught.value.rank == 1
        assert_nothing_lent(device)
    return SURVIVED


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_a_peer_that_dies(new_ranks: NewRanks, device: str, path: Path) -> None:
    assert_others_survived(new_ranks(3).outcomes(lost_in_flight, device, path), lost=1)


def late(device: str) -> None:
    with staged_group(device, timeout=timedelta(seconds=2)) as group:
        dist.all_reduce(torch.ones(1, device=device), group=group)
        if dist.get_rank() == 0:
            with pytest.raises(sparsewire.Timeout):
                dist.all_reduce(torch.ones(SMALLEST, device=device), group=group)
        dist.barrier()
        if dist.get_rank() != 0:
            with pytest.raises(sparsewire.Timeout):
                dist.all_reduce(torch.ones(SMALLEST, device=device), group=group)


@pytest.mark.parametrize("device", DEVICES)
def test_a_rank_that_is_late(ranks: Ranks, device: str) -> None:
    ranks.run(late, device)


def destroyed_in_flight(device: str) -> None:
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(cpu_as_device())
        os.environ["SPARSEWIRE_CUDA"] = "engine"
        group = dist.new_group()
        del os.environ["SPARSEWIRE_CUDA"]
        dist.all_reduce(torch.ones(1, device=device), group=group)
        work = None
        if dist.get_rank() == 0:
            work = dist.all_reduce(torch.ones(SMALLEST, device=device), group=group, async_op=True)
        dist.destroy_process_group(group)
        if work is not None:
            with pytest.raises(sparsewire.Error):
                work.wait()
        assert_nothing_lent(device)
        assert not [thread for thread in threading.enumerate() if "device" in thread.name]


@pytest.mark.parametrize("device", DEVICES)
def test_a_group_that_is_destroyed_in_flight(ranks: Ranks, device: str) -> None:
    ranks.run(destroyed_in_flight, device)


def used_in_a_child() -> None:
    with staged_group("cpu") as group:
        dist.all_reduce(torch.ones(1), group=group)
        child = os.fork()
        if child == 0:
            os._exit(refused(group))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        dist.all_reduce(torch.ones(1), group=group)


def refused(group: Any) -> int:
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except sparsewire.Error as error:
        return 0 if "belongs to the parent process" in str(error) else 1
    return 2


def test_a_forked_child_is_refused(ranks: Ranks) -> None:
    ranks.run(used_in_a_child)
