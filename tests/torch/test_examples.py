"""The examples run to their end, as their own texts say to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Starting torch three times over takes long on a busy machine.
pytestmark = pytest.mark.timeout(180)

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


def run(*command: str, **environment: str) -> str:
    return subprocess.run(
        command,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    ).stdout


@pytest.mark.parametrize("backend", ["sparsewire", "gloo"])
def test_ddp(backend: str) -> None:
    script = str(EXAMPLES / "ddp.py")
    output = run("torchrun", "--standalone", "--nproc-per-node", "2", script, backend)
    assert "step 20: loss" in output


@pytest.mark.parametrize("arguments", [[], ["topk"]])
def test_sparse_embedding(arguments: list[str]) -> None:
    script = str(EXAMPLES / "sparse_embedding_ddp.py")
    output = run("torchrun", "--standalone", "--nproc-per-node", "2", script, *arguments)
    assert "step 20: loss" in output


def test_dedicated_aggregators() -> None:
    run(str(EXAMPLES / "dedicated_aggregators.sh"))


def test_numpy() -> None:
    run(sys.executable, str(EXAMPLES / "numpy_all_reduce.py"), RANK="0", WORLD_SIZE="1")
