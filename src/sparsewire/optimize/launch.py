"""Runs an optimisation in several processes on this machine, without a launcher."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sparsewire.bench.site import Loopback
from sparsewire.demo.launch import run_workers
from sparsewire.optimize.report import from_fields
from sparsewire.optimize.request import Request
from sparsewire.optimize.run import Follow


def run_locally(request: Request, workers: int, follow: Follow) -> None:
    """Start `workers` ranks on loopback, and follow the first one until all have ended.

    Raises WorkerFailed, with what it wrote, as soon as one fails. No worker outlives the call.
    """
    argv = [sys.executable, "-m", "sparsewire.optimize.worker", request.to_json()]
    with tempfile.TemporaryDirectory(prefix="sparsewire-optimize-") as logs:
        run_workers(Loopback(workers), argv, Path(logs), lambda event: follow(from_fields(event)))
