"""How a command ends on a signal: in good order, so that what it has started ends with it."""

from __future__ import annotations

import signal
import sys
import threading
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


@contextmanager
def held_back() -> Iterator[None]:
    """Have what would end this process come after the block, which must be short."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals on the main thread alone.
        yield
        return
    came: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for late in came[:1]:
            signal.raise_signal(late)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
