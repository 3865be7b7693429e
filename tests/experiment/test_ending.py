"""A command that is asked to end ends what it has started first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparsewire.tools.experiment.crew import Crew
from sparsewire.tools.experiment.signals import ending_on
from sparsewire.tools.lab.site import Loopback

COMMAND = "from sparsewire.tools.cli.main import app; app()"


def children_of(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in tasks for child in file.read_text().split()]


class Interrupting(Loopback):
    """Asks this process to end as soon as a worker runs."""

    started: subprocess.Popen[Any]

    def popen(self, *args: Any, **options: Any) -> subprocess.Popen[Any]:
        self.started = super().popen(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return self.started


def test_a_worker_that_has_just_been_started_ends_too(tmp_path: Path) -> None:
    site = Interrupting(1)
    with ending_on(signal.SIGTERM), pytest.raises(SystemExit), Crew(site, tmp_path) as crew:
        crew.start_workers([sys.executable, "-c", "import time; time.sleep(50)"], 1, {})
    try:
        assert site.started.poll() is not None
    finally:
        site.started.kill()


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
