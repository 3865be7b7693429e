"""Arrays on devices in `Communicator`'s calls: as those in host memory, to the last bit."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from device_double import cpu_as_device
from device_groups import (
    DEVICES,
    always,
    assert_nothing_lent,
    assert_same_bits,
    needs_gpu,
    synchronize,
)
from support import run_ranks

import sparsewire
from sparsewire.device.choice import PERIOD, SMALLEST
from sparsewire.device.path_cost import Path
from sparsewire.errors import MismatchError

PATHS = [Path.PACKED, Path.DENSE]


@contextlib.contextmanager
def staged(device: str) -> Any:
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(cpu_as_device())
        yield
        assert_nothing_lent(device)


def blocks(rank: int, size: int = 2 * SMALLEST + 9) -> torch.Tensor:
    torch.manual_seed(rank)
    tensor = torch.randn(size)
    tensor[(torch.rand(size // 256 + 1) < 0.8).repeat_interleave(256)[:size]] = 0
    tensor[:3] = -0.0
    return tensor


def reduces(device: str, path: Path) -> None:
    with sparsewire.init() as comm:
        mine = blocks(comm.rank)
        expected = {op: comm.all_reduce(mine.clone(), op) for op in ("sum", "avg", "min")}
        low = comm.all_reduce(mine.clone(), precision="bfloat16")
        with always(path), staged(device):
            for op, right in expected.items():
                x = mine.clone().to(device)
                assert comm.all_reduce(x, op) is x
                assert_same_bits(x, right)
            turned = mine[:SMALLEST].clone().to(device).view(256, -1).t()
            comm.all_reduce(turned)
            assert_same_bits(turned.t().reshape(-1), expected["sum"][:SMALLEST])
            negative = torch.full((SMALLEST,), 1 + 2j, device=device).conj().imag
            assert negative.is_neg()
            assert comm.all_reduce(negative).eq(-2 * comm.world_size).all()
            assert_same_bits(comm.all_reduce(mine.clone().to(device), precision="bfloat16"), low)

            x, out = mine.clone().to(device), torch.full_like(mine, 5.0, device=device)
            assert comm.all_reduce(x, out=out) is out
            assert_same_bits(out, expected["sum"])
            assert_same_bits(x, mine)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_dense(device: str, path: Path) -> None:
    run_ranks(3, reduces, device, path)


def in_flight(device: str, path: Path) -> None:
    with sparsewire.init() as comm, always(path), staged(device):
        total = sum(range(1, comm.world_size + 1))
        tensors = [
            torch.full((SMALLEST,), comm.rank + 1.0, device=device) for _ in range(2 * PERIOD)
        ]
        works = [comm.all_reduce(tensor, async_op=True) for tensor in tensors]
        called: list[Any] = []
        works[0].add_done_callback(called.append)
        for work in works[::2]:  # Nobody waits for the others.
            assert work.wait(30).eq(total).all()
            assert work.is_completed()
            assert work.exception() is None
        comm.barrier()
        comm.close()  # Waits for callbacks.
        assert called == [works[0]]
        synchronize(device)
        assert all(tensor.eq(total).all() for tensor in tensors)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("device", DEVICES)
def test_many_in_flight(device: str, path: Path) -> None:
    run_ranks(2, in_flight, device, path)


def differ_once() -> None:
    with sparsewire.init(timeout=5) as comm, staged("cpu"):
        with pytest.raises(MismatchError):
            comm.all_reduce(torch.ones(SMALLEST + comm.rank))
        for _ in range(3):
            assert comm.all_reduce(torch.ones(SMALLEST)).eq(2).all()


def test_ranks_that_differed_once_agree_again() -> None:
    run_ranks(2, differ_once)


def sparse(device: str) -> None:
    with sparsewire.init() as comm:
        torch.manual_seed(comm.rank)
        indices = torch.randint(5000, (1, 300))
        mine = torch.sparse_coo_tensor(indices, torch.randn(300, 32), (5000, 32))
        calls = {
            "sum": lambda x: comm.all_reduce(x, result="sparse"),
            "dense": lambda x: comm.all_reduce(x, result="dense"),
            "all": lambda x: comm.all_gather(x)[1],
            "part": comm.reduce_scatter,
            "root": lambda x: comm.reduce(x, root=1),
            "told": lambda x: comm.broadcast(x, root=2),
        }
        expected = {name: call(mine) for name, call in calls.items()}
        with staged(device):
            for name, call in calls.items():
                result = call(mine.to(device))
                if expected[name] is None:
                    assert result is None
                    continue
                assert result.device.type == device
                assert result.layout is expected[name].layout
                assert_same_bits(result.to_dense(), expected[name].to_dense())
            with pytest.raises(ValueError, match="out= is not for tensors on"):
                comm.all_reduce(mine.to(device), out=torch.zeros(5000, 32))


@pytest.mark.parametrize("device", DEVICES)
def test_sparse(device: str) -> None:
    run_ranks(3, sparse, device)


def refused() -> None:
    with sparsewire.init() as comm, staged("cpu"):
        for x, error, words in (
            (torch.ones(5, dtype=torch.uint8), TypeError, "uint8"),
            (torch.ones(SMALLEST, dtype=torch.int32), TypeError, "avg"),
            (torch.ones(5, requires_grad=True), ValueError, "requires grad"),
        ):
            with pytest.raises(error, match=words):
                comm.all_reduce(x, "avg")
        with pytest.raises(ValueError, match="dtype, size and device of x"):
            comm.all_reduce(torch.ones(5), out=torch.ones(6))
        with pytest.raises(ValueError, match="one sparse dimension, not 2"):
            comm.reduce_scatter(torch.eye(4).to_sparse())
        # All ranks refuse by themselves, and go on.
        assert comm.all_reduce(torch.ones(5)).eq(comm.world_size).all()
        with pytest.raises(MismatchError):
            comm.all_reduce(torch.ones(SMALLEST + comm.rank))
        assert comm.all_reduce(torch.ones(5)).eq(comm.world_size).all()


def test_what_it_cannot_use() -> None:
    run_ranks(2, refused)


def test_without_torch_it_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["torch"] = None
import importlib.util, sparsewire
find = importlib.util.find_spec
from sparsewire.collectives import request
request.find_spec = lambda name: None if name == "torch" else find(name)

class OnGpu:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3}

try:
    sparsewire.init(rank=0, world_size=1).all_reduce(OnGpu())
except TypeError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=40, check=True
    )
    assert "OnGpu is on a GPU, and torch" in said.stdout
    assert "install torch" in said.stdout


class OfInterface:
    """An array on a GPU that is not torch's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class OfDlpack:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def foreign(kind: Any) -> None:
    with sparsewire.init() as comm:
        tensor = torch.arange(SMALLEST + 1.0, device="cuda")
        array = kind(tensor)
        assert comm.all_reduce(array) is array
        torch.testing.assert_close(tensor, comm.world_size * torch.arange(SMALLEST + 1.0).cuda())


@needs_gpu
@pytest.mark.parametrize("kind", [OfInterface, OfDlpack])
def test_arrays_of_others(kind: Any) -> None:
    run_ranks(2, foreign, kind)


def test_arrays_on_a_gpu_are_told_from_those_of_the_host() -> None:
    from sparsewire.collectives.request import Form, form_of

    class Elsewhere:
        def __init__(self, kind: int) -> None:
            self.kind = kind

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kind, 0

    host, device = Form.DENSE, Form.DEVICE_DENSE
    assert [form_of(Elsewhere(kind)) for kind in (1, 2, 3, 13)] == [host, device, host, device]
    assert form_of(np.ones(3)) is host
    assert form_of(torch.ones(3)) is host
    assert form_of(b"bytes") is host
