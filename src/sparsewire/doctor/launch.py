"""Diagnoses several ranks on this machine's loopback, without a launcher."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sparsewire.bench.site import Loopback
from sparsewire.demo.launch import Event, run_workers
from sparsewire.doctor.diagnosis import Diagnosis


def of_local_ranks(workers: int) -> Diagnosis:
    """Start so many ranks; raises WorkerFailed, with what it wrote, where one fails."""
    said: list[Event] = []
    argv = [sys.executable, "-m", "sparsewire.doctor.worker"]
    with tempfile.TemporaryDirectory(prefix="sparsewire-doctor-") as logs:
        run_workers(Loopback(workers), argv, Path(logs), said.append)
    return Diagnosis.from_fields(said[0])
