"""Says in the log for what a start waits, so that nobody looks at a silent screen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

_FIRST_S = 2.0
_AGAIN_S = 30.0


@contextmanager
def told(rank: int, world_size: int, awaited: Callable[[], str]) -> Iterator[None]:
    """Warn of a wait inside that lasts 2 s, and then every 30 s; not any more once it has ended.

    `awaited` says for what, from a thread of its own; "" for nothing.
    """
    ended = threading.Event()
    teller = threading.Thread(
        target=_tell,
        args=(ended, f"rank {rank} of {world_size}", awaited),
        name="sparsewire-waiting",
        daemon=True,
    )
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _tell(ended: threading.Event, who: str, awaited: Callable[[], str]) -> None:
    seconds = _FIRST_S
    while not ended.wait(seconds):
        if what := awaited():
            _log.warning("%s waits for %s", who, what)
        seconds = _AGAIN_S
