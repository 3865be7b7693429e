"""Triton's kernels do what torch's operations do, bit by bit; and where they are used.

Without a GPU they run in Triton's interpreter and pass its compiler, each in a process of its own.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from device_groups import assert_same_bits, needs_gpu

from sparsewire.device import block_operations
from sparsewire.device.block_operations import TorchOperations, bits, operations_for
from sparsewire.options import resolve

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
GPU = torch.device("cuda", 0)
MODULE = "sparsewire.device.triton_packing"
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64]


@functools.cache
def outcomes(program: str) -> dict[str, str]:
    """What each check of a program beside this file said: nothing, or why it failed."""
    environment = {**os.environ, "TRITON_INTERPRET": str(int("interpreted" in program))}
    path = Path(__file__).with_name(f"{program}.py")
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_triton
@pytest.mark.timeout(180)
@pytest.mark.parametrize("check", ["marks", "edges", "gathers", "fills", "tensors_with_a_tail"])
def test_same_bits_in_the_interpreter(check: str) -> None:
    assert not outcomes("interpreted_triton")[check]


@needs_triton
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kernel", ["mark", "gather", "fill"])
def test_kernels_compile_for_cuda(kernel: str) -> None:
    why = [why for name, why in outcomes("compiled_triton").items() if name.startswith(kernel)]
    assert len(why) == 4
    assert not any(why), why


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_on_cuda(dtype: torch.dtype) -> None:
    from sparsewire.device.triton_packing import TritonOperations

    triton, plain = TritonOperations(), TorchOperations()
    rows = (torch.randn(10_001, 256, device=GPU) * 9).to(dtype)
    rows[torch.rand(len(rows), device=GPU) < 0.7] = 0
    rows[:3] = torch.tensor(-0.0).to(dtype)
    marks = triton.mark(rows)
    assert marks.equal(plain.mark(rows))
    indices = marks.nonzero().squeeze(1)
    gathered = triton.gather(bits(rows), indices)
    assert_same_bits(gathered.cpu(), plain.gather(bits(rows), indices).cpu())
    one, other = torch.ones_like(bits(rows)), torch.ones_like(bits(rows))
    triton.fill(one, indices, gathered)
    plain.fill(other, indices, gathered)
    assert_same_bits(one.cpu(), other.cpu())


@pytest.fixture
def no_choice_yet(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(block_operations, "_chosen", {})
    monkeypatch.delenv(block_operations.SETTING, raising=False)
    return monkeypatch


def takes(monkeypatch: pytest.MonkeyPatch, torchs_s: float, tritons_s: float) -> list[str]:
    """Have operations take so long; the names of those that were timed."""
    timed: list[str] = []

    def seconds(operations: object, device: torch.device) -> float:
        timed.append(type(operations).__name__)
        return torchs_s if isinstance(operations, TorchOperations) else tritons_s

    monkeypatch.setattr(block_operations, "_seconds", seconds)
    return timed


@needs_triton
@pytest.mark.parametrize(("tritons_s", "name"), [(1.0, "Triton"), (3.0, "Torch")])
def test_the_faster_ones_serve_cuda(
    no_choice_yet: pytest.MonkeyPatch, tritons_s: float, name: str
) -> None:
    timed = takes(no_choice_yet, 2.0, tritons_s)
    for _ in range(2):
        assert type(operations_for(GPU)).__name__ == f"{name}Operations"
    assert len(timed) == 2


def test_tensors_elsewhere_and_the_setting_need_no_choice(
    no_choice_yet: pytest.MonkeyPatch,
) -> None:
    timed = takes(no_choice_yet, 2.0, 1.0)
    assert isinstance(operations_for(torch.device("cpu")), TorchOperations)
    no_choice_yet.setenv("SPARSEWIRE_TRITON", "off")
    assert isinstance(operations_for(GPU), TorchOperations)
    assert not timed


def test_without_triton_torch_serves(
    no_choice_yet: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_choice_yet.setitem(sys.modules, MODULE, None)
    takes(no_choice_yet, 2.0, 1.0)
    assert isinstance(operations_for(GPU), TorchOperations)
    assert not caplog.records


@needs_triton
def test_kernels_that_do_not_run_are_replaced_and_told_of(
    no_choice_yet: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(operations: object, device: torch.device) -> float:
        raise RuntimeError("Failed to find C compiler")

    no_choice_yet.setattr(block_operations, "_seconds", fail)
    with caplog.at_level(logging.WARNING):
        assert isinstance(operations_for(GPU), TorchOperations)
    (record,) = caplog.records
    assert "Failed to find C compiler" in record.getMessage()


def test_only_what_the_setting_knows_is_taken() -> None:
    job = {"RANK": "0", "WORLD_SIZE": "1"}
    assert resolve(job).triton == "auto"
    assert resolve({**job, "SPARSEWIRE_TRITON": "off"}).triton == "off"
    with pytest.raises(ValueError, match="SPARSEWIRE_TRITON must be auto or off"):
        resolve({**job, "SPARSEWIRE_TRITON": "on"})
