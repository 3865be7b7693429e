"""Runs a module of this package as several ranks on loopback, without a launcher."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from sparsewire.workers.launch import Event, run_workers
from sparsewire.workers.site import Loopback


def run_on_loopback(
    module: str, *arguments: str, ranks: int, on_event: Callable[[Event], None]
) -> None:
    """Run `python -m module arguments...` as each of `ranks` ranks; pass on rank 0's events.

    Raises WorkerFailed, with what it wrote, as soon as one fails. No worker outlives the call.
    """
    argv = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory(prefix="sparsewire-workers-") as logs:
        run_workers(Loopback(ranks), argv, Path(logs), on_event)
