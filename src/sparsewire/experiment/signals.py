"""How a command ends on a signal: in good order, so that what it has started ends with it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def ending_on(*numbers: signal.Signals) -> Iterator[None]:
    """Turn signals that would end Python at once, and leave processes behind, into an exit."""
    previous = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
