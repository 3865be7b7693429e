"""Runs the examples of trainers, and reads what their ranks say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"
BIN = Path(sys.executable).parent
LIMIT_S = 280

LINE = re.compile(r"rank (\d): (\d+) by the engine, parameters ([0-9a-f]{16})")


class Said(NamedTuple):
    """What the two ranks said in the end: the same parameters, and who carried the gradients."""

    parameters: str
    by_the_engine: int
    output: str


def start(*command: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command with the programs of this environment, in a process group of its own."""
    return subprocess.Popen(
        [str(each) for each in command],
        env={
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; fails where it fails, or takes too long."""
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{process.args} took too long:\n{output}") from None
    assert process.returncode == 0, f"{process.args}:\n{output}"
    return output


def said(*outputs: str) -> Said:
    """What two ranks said, in one output or in two."""
    output = "\n".join(outputs)
    lines = set(LINE.findall(output))
    assert {rank for rank, _, _ in lines} == {"0", "1"}, output
    (parameters,) = {found for _, _, found in lines}
    return Said(parameters, min(int(carried) for _, carried, _ in lines), output)


def run(*command: str | Path, **environment: str) -> Said:
    """Run a command that starts both ranks."""
    return said(ended(start(*command, **environment)))


def torchrun(*arguments: str | Path) -> list[str | Path]:
    return ["torchrun", "--standalone", "--nproc-per-node", "2", *arguments]
