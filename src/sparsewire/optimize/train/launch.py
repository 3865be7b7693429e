"""Runs an optimisation in several processes on this machine, without a launcher."""

from __future__ import annotations

from sparsewire.experiment.launch import run_on_loopback
from sparsewire.optimize.train.report import from_fields
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.run import Follow


def run_locally(request: Request, workers: int, follow: Follow) -> None:
    """Start `workers` ranks on loopback, and follow the first one until all have ended.

    Raises WorkerFailed, with what it wrote, as soon as one fails. No worker outlives the call.
    """
    run_on_loopback(
        "sparsewire.optimize.train.worker",
        request.to_json(),
        ranks=workers,
        on_event=lambda event: follow(from_fields(event)),
    )
