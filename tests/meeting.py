"""How the ranks of a test await each other without the library that they test: by files.

Used where one rank may only go on, to die for example, once the others have come so far.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

MEETING_PLACE = "TEST_MEETING_PLACE"
DEADLINE_S = 30.0


def tell(event: str) -> None:
    """Let those know that wait for `event` of this rank."""
    _sign(event, int(os.environ["RANK"])).touch()


def wait_for(event: str, ranks: Iterable[int]) -> None:
    """Return once all of `ranks` have told of `event`."""
    deadline = time.monotonic() + DEADLINE_S
    for sign in [_sign(event, rank) for rank in ranks]:
        while not sign.exists():
            assert time.monotonic() < deadline, f"{sign.name} did not come"
            time.sleep(0.005)


def meet(event: str) -> None:
    """Return once every rank has come to `event`."""
    tell(event)
    wait_for(event, range(int(os.environ["WORLD_SIZE"])))


def _sign(event: str, rank: int) -> Path:
    return Path(os.environ[MEETING_PLACE], f"{event}-{rank}")
