"""Diagnoses several ranks on this machine's loopback, without a launcher."""

from __future__ import annotations

from sparsewire.doctor.diagnosis import Diagnosis
from sparsewire.experiment.events import Event
from sparsewire.experiment.launch import run_on_loopback


def of_local_ranks(workers: int) -> Diagnosis:
    """Start so many ranks; raises WorkerFailed, with what it wrote, where one fails."""
    said: list[Event] = []
    run_on_loopback("sparsewire.doctor.worker", ranks=workers, on_event=said.append)
    return Diagnosis.from_fields(said[0])
