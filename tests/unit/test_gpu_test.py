"""`make gpu-test` says what it did and did not do; stand-ins take the place of other programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "gpu-test"
BASH = shutil.which("bash") or "bash"
PYTHON = 'if [ "$1" = -c ]; then exit {without}; fi; echo "ran $*"; exit {failed}'
SANITIZER = 'echo "checked $* $PYTORCH_NO_CUDA_MEMORY_CACHING"; exit 99'


def run(folder: Path, **programs: str) -> tuple[int, list[str]]:
    """The script's status and lines, on a machine that has these programs alone."""
    for name, body in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!{BASH}\n{body}\n")
        path.chmod(0o755)
    done = subprocess.run(
        [BASH, SCRIPT, "-x"], env={"PATH": str(folder)}, capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stdout.splitlines()


def test_without_a_gpu_it_says_that_nothing_was_tested(tmp_path: Path) -> None:
    status, lines = run(
        tmp_path, python=PYTHON.format(without=1, failed=0), compute_sanitizer=SANITIZER
    )
    assert (status, lines) == (
        0,
        ["GPU tests left out: torch finds no GPU here, so nothing was tested."],
    )


def test_without_the_sanitizer_it_says_so(tmp_path: Path) -> None:
    status, (ran, said) = run(tmp_path, python=PYTHON.format(without=0, failed=0))
    assert (status, ran) == (0, "ran -m pytest -m gpu tests/torch -x")
    assert "memory was not checked" in said


def test_with_the_sanitizer_what_it_finds_is_the_status(tmp_path: Path) -> None:
    status, (ran, checked) = run(
        tmp_path, python=PYTHON.format(without=0, failed=0), compute_sanitizer=SANITIZER
    )
    assert status == 99
    assert ran.startswith("ran ")
    assert "--target-processes all" in checked
    assert checked.endswith("python -m pytest -m gpu tests/torch -x --timeout 1200 1")


@pytest.mark.parametrize("failed", [1, 5])
def test_tests_that_fail_are_the_status(tmp_path: Path, failed: int) -> None:
    status, lines = run(
        tmp_path, python=PYTHON.format(without=0, failed=failed), compute_sanitizer=SANITIZER
    )
    assert status == failed
    assert len(lines) == 1
