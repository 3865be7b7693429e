"""torchft's LocalSGD and DiLoCo over sparsewire: its own tests of them pass (`torchft_suite`).

They run in a process of their own, because their failing replicas leave threads behind.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchft")
pytest.importorskip("parameterized", reason="torchft's tests need it")

QUICK = [
    "test_local_sgd_recovery_0",
    "test_diloco_healthy_0",
    "test_diloco_recovery_0",
    "test_streaming_diloco_recovery_0",
    "test_streaming_diloco_upscale_00",
    "test_streaming_diloco_commit_failure_00",
]


def passed(*names: str) -> int:
    """Run these tests, or all; how many passed."""
    program = Path(__file__).with_name("torchft_suite.py")
    chosen = [f"LocalSGDIntegTest.{name}" for name in names]
    run = subprocess.run(
        [sys.executable, program, "sparsewire", *chosen],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    counted = re.search(r"^Ran (\d+) tests? in .*\s+OK$", run.stdout, re.M)
    assert counted, run.stdout[-20_000:]
    return int(counted[1])


def test_replicas_fail_come_back_and_join() -> None:
    assert passed(*QUICK) == len(QUICK)


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_all_of_the_suite() -> None:
    assert passed() > len(QUICK)
