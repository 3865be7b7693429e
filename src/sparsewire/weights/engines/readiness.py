"""Whether readers are ready: a training waits for that before its engines pause."""

from __future__ import annotations

import time

from sparsewire.weights.publisher import Publisher

_PATIENCE_S = 60.0
_PAUSE_S = 0.01


def await_readers(publisher: Publisher, timeout: float = _PATIENCE_S) -> None:
    """Wait until no reader is fetching a version, or so many seconds: who is late then is told so
    when it is asked to load."""
    deadline = time.monotonic() + timeout
    while _is_staging(publisher) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def _is_staging(publisher: Publisher) -> bool:
    return any(row["doing"] == "staging" for row in publisher.status()["readers"])
