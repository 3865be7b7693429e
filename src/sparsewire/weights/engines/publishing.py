"""A training's part of a round: a version is published, and readers get ready for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from sparsewire.weights.publisher import Publisher

_PATIENCE_S = 60.0
_PAUSE_S = 0.01


def publish(publisher: Publisher, weights: Iterable[tuple[str, Any]]) -> int:
    """Publish a version and wait for readers; returns its number.

    `weights` are iterated to their end, whatever fails: other ranks gather them with this one.
    Raises what `Publisher.publish` raises.
    """
    pairs = iter(weights)
    try:
        version = publisher.publish(pairs).version
    finally:
        for _ in pairs:
            pass
    await_readers(publisher)
    return version


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
