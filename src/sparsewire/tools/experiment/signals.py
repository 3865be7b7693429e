"""How a command ends on a signal: in good order, so that what it has started ends with it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def ending_on(*numbers: signal.Signals) -> Iterator[None]:
    """Turn signals that would end Python at once, and leave processes behind, into an exit."""
    with _handling(numbers, _exit):
        yield


@contextmanager
def held_back() -> Iterator[None]:
    """Have what would end this process come after the block, which must be short."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals on the main thread alone.
        yield
        return
    came: list[int] = []
    try:
        with _handling((signal.SIGINT, signal.SIGTERM), lambda number, _: came.append(number)):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def _handling(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
