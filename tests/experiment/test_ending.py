"""A command that is asked to end ends what it has started first."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = "from sparsewire.cli.main import app; app()"


def children_of(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in tasks for child in file.read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which children there are")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_workers_end_with_the_bench(number: signal.Signals, status: int) -> None:
    pytest.importorskip("torch")
    options = "bench all_reduce --ranks 2 --elements 1e6 --iterations 1000000"
    with subprocess.Popen([sys.executable, "-c", COMMAND, *options.split()]) as bench:
        try:
            deadline = time.monotonic() + 40
            while len(workers := children_of(bench.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(workers) == 2
            bench.send_signal(number)
            assert bench.wait(15) == status
            assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
        finally:
            bench.kill()
