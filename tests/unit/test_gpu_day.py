"""`make gpu-day` says what it did and did not do; stand-ins take the place of other programs."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "gpu-day"
TORCH = """
__version__ = "2.11.0"
class cuda:
    is_available = staticmethod(lambda: {available})
    get_device_name = staticmethod(lambda: "a GPU")
"""
RUNNER = """
import os, sys
print("ran", *sys.argv[1:], os.environ.get("SPARSEWIRE_TRITON", ""))
print('{{"figure": 1}}')
sys.exit({status})
"""
HANGING = """
import os, pathlib, signal, subprocess, time
if {is_deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["{sleep}", "300"], start_new_session=True)
pids = pathlib.Path(__file__).parents[1] / "pids"
print("it hangs")
pids.with_suffix(".new").write_text(f"{{os.getpid()}} {{child.pid}}")
pids.with_suffix(".new").rename(pids)
time.sleep(300)
"""
SANITIZER = '#!{shell}\necho "checked $* $PYTORCH_NO_CUDA_MEMORY_CACHING"; exit 99\n'


def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    loader = SourceFileLoader("gpu_day", str(SCRIPT))
    spec = importlib.util.spec_from_loader("gpu_day", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_day", module)
    loader.exec_module(module)
    return module


def stand_ins(folder: Path, available: bool = True, status: int = 0) -> Path:
    """Packages that take the place of torch and pytest."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(TORCH.format(available=available))
    (folder / "pytest").mkdir()
    (folder / "pytest" / "__init__.py").write_text("")
    (folder / "pytest" / "__main__.py").write_text(RUNNER.format(status=status))
    for name in ("pytest_timeout", "hypothesis", "pyroute2", "click", "rich"):
        (folder / f"{name}.py").write_text("")
    return folder


def run(
    folder: Path, *arguments: str, bare: bool = False, **programs: str
) -> tuple[int, str, dict[str, Any]]:
    """Status, output and records of a machine with these packages and programs alone.

    `bare`: without the packages of this environment.
    """
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        program = folder / "bin" / name.replace("_", "-")
        program.write_text(text.format(shell=shutil.which("bash")))
        program.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": str(folder / "bin")}
    command = [sys.executable, *(["-S"] if bare else []), str(SCRIPT), "--out", str(folder / "out")]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=50
    )
    paths = (folder / "out").glob("*.json")
    records = {path.stem: json.loads(path.read_text()) for path in paths}
    return done.returncode, done.stdout + done.stderr, records


def test_without_a_gpu_it_says_that_nothing_was_run(tmp_path: Path) -> None:
    outcome = run(stand_ins(tmp_path, available=False), "build", "tests")
    text = "Parts for a GPU left out: torch finds no GPU here, so nothing was run.\n"
    assert outcome == (0, text, {})


def test_without_torch_it_says_so(tmp_path: Path) -> None:
    outcome = run(tmp_path, bare=True)
    text = "Parts for a GPU left out: torch is not installed here, so nothing was run.\n"
    assert outcome == (0, text, {})


def test_parts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    status, text, _ = run(tmp_path, "tests", "no-such")
    assert status == 2
    assert "there is no part 'no-such'; there are build, tests, triton" in text


def test_a_folder_of_wheels_must_be_there(tmp_path: Path) -> None:
    status, text, _ = run(tmp_path, "build", "--wheels", str(tmp_path / "none"))
    assert status == 2
    assert "there is no folder" in text


def test_what_the_build_misses_is_named(tmp_path: Path) -> None:
    status, text, records = run(stand_ins(tmp_path), "build", bare=True)
    assert status == 1
    assert "build: missing: for the build there must be scikit-build-core, nanobind" in text
    assert "WHEELS" in records["build"]["why"]
    assert records["build"]["steps"] == []


def test_what_the_tests_miss_is_named(tmp_path: Path) -> None:
    stand_ins(tmp_path)
    (tmp_path / "pytest_timeout.py").unlink()
    (tmp_path / "numpy.py").write_text("")
    status, text, records = run(tmp_path, "tests", bare=True)
    assert status == 1
    assert "for the tests there must be pytest-timeout: put their wheels into a folder" in text
    assert records["tests"]["status"] == "missing"


def test_a_record_tells_what_ran_and_what_it_printed(tmp_path: Path) -> None:
    status, _, records = run(stand_ins(tmp_path), "triton", "--", "-x", "-k", "name")
    assert status == 0
    record = records["triton"]
    assert record["machine"]["device"] == "a GPU"
    assert record["machine"]["torch"] == "2.11.0"
    kernels, without = record["steps"]
    assert kernels["output"].startswith("ran -m gpu tests/torch/test_device_triton.py -x -k name")
    assert without["output"].splitlines()[0].endswith("test_torch_device.py -x -k name off")
    assert kernels["figures"] == [{"figure": 1}]
    assert (kernels["status"], kernels["exits"]) == ("passed", [0])


@pytest.mark.parametrize("failed", [1, 5])
def test_tests_that_fail_are_told_and_the_next_part_runs(tmp_path: Path, failed: int) -> None:
    status, text, records = run(stand_ins(tmp_path, status=failed), "tests", "triton")
    assert status == 1
    assert "tests: failed" in text
    assert records["tests"]["steps"][0]["exits"] == [failed]
    assert records["triton"]["status"] == "failed"


def test_without_the_sanitizer_memory_is_left_out(tmp_path: Path) -> None:
    status, text, records = run(stand_ins(tmp_path), "memory")
    assert status == 0
    assert "memory was not checked" in text
    assert records["memory"]["status"] == "left out"


def test_what_the_sanitizer_finds_fails(tmp_path: Path) -> None:
    status, _, records = run(stand_ins(tmp_path), "memory", "--", "-x", compute_sanitizer=SANITIZER)
    assert status == 1
    step, *others = records["memory"]["steps"]
    assert step["exits"] == [99]
    assert "--target-processes all" in step["output"]
    path = "tests/torch/test_device_triton.py"
    assert step["output"].endswith(f"-m pytest -m gpu {path} --timeout 1200 -x 1\n")
    assert others[-1]["step"].startswith("test_torch")


def test_memory_is_checked_in_all_tests_that_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [sys.executable, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "tests/torch"]
    text = subprocess.run(listed, cwd=SCRIPT.parents[1], capture_output=True, text=True).stdout
    needing = {Path(line.partition("::")[0]).stem for line in text.splitlines() if "::" in line}
    assert needing == set(script(monkeypatch).TESTS_OF_DEVICES)


def test_arguments_that_select_nothing_leave_a_step_out(tmp_path: Path) -> None:
    status, _, records = run(stand_ins(tmp_path, status=5), "tests", "--", "-k", "no such")
    assert (status, records["tests"]["status"]) == (0, "left out")
    status, _, records = run(tmp_path, "tests")
    assert (status, records["tests"]["status"]) == (1, "failed")


def test_a_part_that_breaks_leaves_the_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = script(monkeypatch)
    job = program.Job(tmp_path, tmp_path / "site", None, "cpu", [])

    def broken(job: Any) -> Any:
        raise PermissionError("not yours")
        yield

    monkeypatch.setitem(program.PARTS, "tests", broken)
    assert program.run_part("tests", job) == "failed"
    assert "not yours" in json.loads((tmp_path / "tests.json").read_text())["why"]


def hanging(folder: Path, is_deaf: bool = False) -> Path:
    """Stand-ins whose tests never end, with a child in a session of its own, as torchrun's are.

    `is_deaf`: they do not hear that they are to end.
    """
    text = HANGING.format(is_deaf=is_deaf, sleep=shutil.which("sleep"))
    (stand_ins(folder) / "pytest" / "__main__.py").write_text(text)
    return folder


def assert_none_is_left(folder: Path) -> None:
    pids = (folder / "pids").read_text().split()
    assert len(pids) == 2
    assert not [pid for pid in pids if not ends(int(pid))]


def test_a_step_out_of_time_is_ended_with_its_childrens_sessions(tmp_path: Path) -> None:
    status, text, records = run(hanging(tmp_path), "tests", "--limit", "2")
    assert_none_is_left(tmp_path)
    (step,) = records["tests"]["steps"]
    assert (status, step["status"], step["exits"]) == (1, "out of time", [-signal.SIGTERM])
    assert step["output"] == "it hangs\n"
    assert "tests: out of time" in text


@pytest.mark.exhaustive  # It is given its time to end.
def test_what_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    _, _, records = run(hanging(tmp_path, is_deaf=True), "tests", "--limit", "2")
    assert_none_is_left(tmp_path)
    assert records["tests"]["steps"][0]["exits"] == [-signal.SIGKILL]


def test_nothing_is_left_of_a_day_that_is_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(hanging(tmp_path))}
    command = [sys.executable, SCRIPT, "--out", tmp_path / "out", "tests"]
    with subprocess.Popen(command, env=environment) as day:
        while not (tmp_path / "pids").exists():
            assert day.poll() is None
            time.sleep(0.01)
        day.terminate()
        day.wait(30)
    assert_none_is_left(tmp_path)


def ends(pid: int) -> bool:
    """Whether it does so soon: what is killed takes a while to be gone."""
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


def is_running(pid: int) -> bool:
    """Whether a process is there, and not only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_every_part_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in script(monkeypatch).PARTS.values():
        assert part.__doc__
