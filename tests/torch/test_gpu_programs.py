"""The programs of `make gpu-day`, dry: the CPU over the double stands for the device."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {
    "staging": {"to_host_ms", "back_ms", "density", "path"},
    "sharing": {"backend", "density", "seconds"},
    "failures": {"case"},
    "checks": {"check"},
    "overlap": {"backend", "step_s", "copies_beside_backward", "couriers_of_a_core"},
}


@pytest.mark.exhaustive
@pytest.mark.timeout(280)
@pytest.mark.parametrize("part", FIGURES)
def test_dry_run(tmp_path: Path, part: str) -> None:
    command = [sys.executable, ROOT / ".ci" / "gpu-day", "--device", "cpu", "--installed"]
    done = subprocess.run(
        [*command, "--out", tmp_path, part], capture_output=True, text=True, timeout=270
    )
    assert done.returncode == 0, done.stdout
    record = json.loads((tmp_path / f"{part}.json").read_text())
    assert record["steps"]
    for step in record["steps"]:
        assert step["figures"], step
        assert all(figures.keys() >= FIGURES[part] for figures in step["figures"])


RANK = """
import os, pathlib, time
(pathlib.Path(__file__).parent / f"{os.getpid()}.rank").touch()
time.sleep(300)
"""


@pytest.mark.timeout(180)
def test_no_rank_of_torchrun_is_left(tmp_path: Path) -> None:
    programs = tmp_path / "benchmarks" / "gpu"
    programs.mkdir(parents=True)
    (programs / "checks.py").write_text(RANK)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    command = [sys.executable, tmp_path / ".ci" / "gpu-day", "--device", "cpu", "--installed"]
    with subprocess.Popen([*command, "--out", tmp_path, "checks"]) as day:
        while len(pids := [each.stem for each in programs.glob("*.rank")]) < 3:
            assert day.poll() is None
            time.sleep(0.05)
        day.terminate()
        day.wait(60)
    assert not [pid for pid in pids if Path("/proc", pid).exists()]


@pytest.fixture
def overlap(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    import overlap

    return overlap


BACKWARD, OURS = 7, 20


def event(kind: str, name: str, stream: int, begin: float, length: float) -> dict[str, Any]:
    """As in a trace of torch's profiler on CUDA."""
    return {"cat": kind, "name": name, "ts": begin, "dur": length, "args": {"stream": stream}}


def gemm(begin: float, length: float) -> dict[str, Any]:
    return event("kernel", "sm80_xmma_gemm_f32f32", BACKWARD, begin, length)


def copy(begin: float, length: float, name: str = "DtoH (Device -> Pinned)") -> dict[str, Any]:
    return event("gpu_memcpy", f"Memcpy {name}", OURS, begin, length)


def test_overlap_of_a_trace(overlap: Any) -> None:
    kernels = [gemm(0, 10), gemm(5, 10), gemm(30, 10)]
    copies = [copy(10, 10), copy(12, 4), copy(35, 10, "HtoD (Pinned -> Device)")]
    # Of 10 to 20 and 35 to 45, kernels run until 15 and until 40.
    assert overlap.overlap([*kernels, *copies, {"cat": "cpu_op", "ts": 0}]) == 0.5
    assert overlap.overlap(copies) == 0
    assert overlap.overlap(kernels) is None


def test_copies_inside_the_device_are_none(overlap: Any) -> None:
    inside = copy(0, 10, "DtoD (Device -> Device)")
    assert overlap.overlap([gemm(0, 10), inside, copy(10, 10)]) == 0
    assert overlap.overlap([gemm(0, 10), inside]) is None


def test_kernels_that_stage_are_not_of_the_backward_pass(overlap: Any) -> None:
    staging = [event("kernel", "_gather", OURS, begin, 5) for begin in (10, 15, 20)]
    assert overlap.overlap([gemm(0, 10), *staging, copy(10, 15)]) == 0
