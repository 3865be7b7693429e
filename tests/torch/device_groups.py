"""Groups whose tensors are staged: on a GPU where there is one, and on the CPU over a double."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from device_double import Double, cpu_as_device
from support import until

import sparsewire.torch
from sparsewire.device import choice
from sparsewire.device.path_cost import Path
from sparsewire.device.staging import Staging, staging_of

T = TypeVar("T")

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=_ON_GPU)]
"""What tests run on. All ranks share one GPU."""


def needs_gpu(test: T) -> T:
    """Mark a test that runs on a GPU alone."""
    for mark in _ON_GPU:
        test = mark(test)
    return test


@contextlib.contextmanager
def staged_group(device: str, mode: str = "engine", **options: Any) -> Iterator[Any]:
    """A new group of all ranks that stages tensors on `device`, by SPARSEWIRE_CUDA=`mode`.

    At the end nothing of the pinned memory may be lent any more.
    """
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(cpu_as_device(str(dist.get_rank())))
        group = stack.enter_context(group_in_mode(mode, **options))
        yield group
        assert_nothing_lent(device)


@contextlib.contextmanager
def group_in_mode(mode: str, destroys: bool = True, **options: Any) -> Iterator[Any]:
    """A new group of all ranks, made with SPARSEWIRE_CUDA=`mode`."""
    with patch.dict(os.environ, SPARSEWIRE_CUDA=mode):
        group = dist.new_group(**options)
        try:
            yield group
        finally:
            if destroys:
                dist.destroy_process_group(group)


def assert_nothing_lent(device: str) -> None:
    """Of a call that failed, a thread gives the memory back, perhaps behind the caller's error."""
    ways = staging(device).down, staging(device).up
    until(lambda: [way.pool.lent_bytes for way in ways] == [0, 0])


def staging(device: str) -> Staging:
    return staging_of(torch.empty(0, device=device).device)


def synchronize(device: str) -> None:
    """Wait for all that the device has to do."""
    if device == "cpu":
        double().synchronize()
    else:
        torch.cuda.synchronize()


def double() -> Double:
    """What the CPU is staged over."""
    accelerator: Any = staging("cpu").accelerator
    return accelerator


@contextlib.contextmanager
def always(path: Path) -> Iterator[None]:
    """Have this path chosen, whatever it costs."""
    former, choice.choose = choice.choose, lambda *_: path
    try:
        yield
    finally:
        choice.choose = former


def path_of(group: Any) -> Any:
    """How the group serves tensors on devices; None before the first one."""
    member = sparsewire.torch.backend.member_of(group)
    assert member is not None
    return member.device_path


def operations(group: Any) -> int:
    """What the engine did for tensors on devices."""
    path = path_of(group)
    return 0 if path is None else path.communicator.stats()["operations"]


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(bits(actual), bits(expected), rtol=0, atol=0)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().view(BITS[tensor.element_size()])
