"""Whether readers are ready: a training waits for that before its engines pause."""

from __future__ import annotations

import time
from typing import Any

from sparsewire.weights.publisher import Publisher

_PATIENCE_S = 60.0
_PAUSE_S = 0.01


def await_readers(publisher: Publisher, timeout: float = _PATIENCE_S) -> None:
    """Wait until every reader that asked for it has verified the newest version.

    It takes so many seconds at most: whoever is late then waits when it is told to load.
    """
    deadline = time.monotonic() + timeout
    while _is_awaited(publisher) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def _is_awaited(publisher: Publisher) -> bool:
    version = publisher.version
    return version is not None and any(
        _lacks(row, version) for row in publisher.status()["readers"]
    )


def _lacks(row: dict[str, Any], version: int) -> bool:
    """Whether a reader is getting this version; one that has not asked for any is not awaited."""
    has = [each for each in (row["version"], row["verified"]) if each is not None]
    return row["doing"] in ("waiting", "staging") and max(has, default=-1) < version
