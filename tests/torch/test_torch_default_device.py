"""What is ours in host memory is there, also where the program has another default device."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from device_double import cpu_as_device
from device_groups import always, staged_group
from ranks import Ranks
from support import run_ranks

import sparsewire
from sparsewire.device.accelerator import Cuda
from sparsewire.device.choice import SMALLEST
from sparsewire.device.path_cost import Path
from sparsewire.torch import hooks
from sparsewire.torch.calls.plain_call import _copied_to_host

ELSEWHERE = torch.device("meta")


def test_pinned_memory() -> None:
    with ELSEWHERE, patch.object(torch, "empty") as empty:
        Cuda().pinned(10)
    assert empty.call_args.kwargs["device"] == "cpu"


def test_a_copy_for_gloo() -> None:
    tensor = torch.ones(5)
    with cpu_as_device(), ELSEWHERE:
        assert _copied_to_host(tensor).is_cpu


def staged(path: Path) -> None:
    with sparsewire.init() as comm, cpu_as_device(), always(path):
        dense = torch.ones(SMALLEST)
        sparse = torch.eye(3).to_sparse()
        with ELSEWHERE:
            comm.all_reduce(dense)
            summed = comm.all_reduce(sparse, result="sparse")
        assert dense.eq(2).all()
        assert torch.equal(summed.to_dense(), 2 * torch.eye(3))
    with sparsewire.init() as comm, ELSEWHERE:
        assert comm.all_reduce(sparse, result="sparse").is_cpu


@pytest.mark.parametrize("path", [Path.PACKED, Path.DENSE])
def test_a_communicator(path: Path) -> None:
    run_ranks(2, staged, path)


def grouped() -> None:
    def average(tensor: torch.Tensor, state: Any) -> torch.Tensor:
        return state.transport.average(tensor).wait()

    with staged_group("cpu") as group:
        tensor, state = torch.ones(SMALLEST), hooks.ErrorFeedbackState(group)
        with ELSEWHERE:
            dist.all_reduce(tensor, group=group)
            dist.barrier(group=group)
            average(tensor, state)
        vector = state.residuals.of(torch.nn.Parameter(tensor))
        assert tensor.eq(dist.get_world_size()).all()
        assert vector.is_cpu
    with ELSEWHERE:
        assert hooks.means.Scratch().zeros(3).is_cpu
        dist.barrier()


def test_a_group(ranks: Ranks) -> None:
    ranks.run(grouped)
