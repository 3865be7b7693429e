"""The benchmark without torch: NumPy alone is measured, and gloo says what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Python runs this in every process before anything else.
HIDING = """
import sys
sys.modules["torch"] = None
"""


def run_without_torch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(HIDING)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "sparsewire", "bench", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize(
    "options",
    [
        "--dtype float64",
        "--input sparse --algorithm auto,allgather",
        "--transport udp --arithmetic fixed",
    ],
)
def test_numpy_alone_is_measured(tmp_path: Path, options: str) -> None:
    record = tmp_path / "record.json"
    case = "--ranks 2 --elements 5000 --density 0.2 --iterations 3 --warmup 1"
    outcome = run_without_torch(
        tmp_path, "all_reduce", *case.split(), *options.split(), "--json", str(record)
    )
    assert outcome.returncode == 0, outcome.stderr
    told: dict[str, Any] = json.loads(record.read_text())
    assert told["conditions"]["versions"]["sparsewire"]
    (result,) = told["results"]
    assert result["share_mean"] == 0.2
    assert all(len(measured["times_s"]) == 3 for measured in result["backends"].values())


@pytest.mark.parametrize("options", ["--against gloo", "--through torch"])
def test_what_needs_torch_says_so_and_how_to_get_it(tmp_path: Path, options: str) -> None:
    outcome = run_without_torch(tmp_path, "all_reduce", "--elements", "1000", *options.split())
    assert outcome.returncode == 1
    assert 'torch is missing: pip install "sparsewire[torch]"' in outcome.stderr
    assert "Traceback" not in outcome.stderr
