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


@pytest.mark.parametrize(
    "script",
    ["ddp.py", pytest.param("sparse_embedding_ddp.py", marks=pytest.mark.exhaustive)],
)
def test_ddp(script: str) -> None:
    output = run("torchrun", "--standalone", "--nproc-per-node", "2", str(EXAMPLES / script))
    assert "step 20: loss" in output


@pytest.mark.parametrize(
    ("script", "argument"), [("ddp.py", "gloo"), ("sparse_embedding_ddp.py", "topk")]
)
def test_ddp_with_an_argument(script: str, argument: str, free_port: int) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    output = run(
        sys.executable, str(EXAMPLES / script), argument, RANK="0", WORLD_SIZE="1", **place
    )
    assert "step 20: loss" in output


@pytest.mark.parametrize(
    "preset", ["diloco", pytest.param("sparseloco", marks=pytest.mark.exhaustive)]
)
def test_outer(preset: str) -> None:
    script = str(EXAMPLES / "outer.py")
    output = run("torchrun", "--standalone", "--nproc-per-node", "2", script, preset)
    assert "20 rounds" in output


@pytest.mark.exhaustive
def test_reinforcement() -> None:
    pytest.importorskip("xxhash")
    script = str(EXAMPLES / "reinforcement.py")
    output = run("torchrun", "--standalone", "--nproc-per-node", "4", script)
    assert output.count("bytes to each reader") == 20


def test_dedicated_aggregators() -> None:
    run(str(EXAMPLES / "dedicated_aggregators.sh"))


def test_numpy() -> None:
    run(sys.executable, str(EXAMPLES / "numpy_all_reduce.py"), RANK="0", WORLD_SIZE="1")
