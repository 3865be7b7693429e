"""What a command shows again and again, on a screen of its own, until Ctrl-C or the key q."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

Pause = Callable[[float], bool]
"""Waits for so many seconds; true, and at once, where somebody wants to end."""

_HINT = "q ends this"


def wait(seconds: float) -> bool:
    """The pause of those whom no key can end."""
    time.sleep(seconds)
    return False


def show_live(frames: Callable[[Pause], Iterator[RenderableType]]) -> None:
    """Show each frame in the place of the one before, and leave the last one where all end."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from sparsewire.experiment.report import report_console

    console, last = report_console(), None
    is_seen = console.is_terminal
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pause,
        Live(console=console, auto_refresh=False, screen=is_seen) as live,
    ):
        for last in frames(pause):
            live.update(Group(last, Text(_HINT, "dim")) if is_seen else last, refresh=True)
    if is_seen and last is not None:
        console.print(last)


@contextlib.contextmanager
def _keys() -> Iterator[Pause]:
    """Pauses that the key q ends, where somebody at a terminal could press it."""
    if not _has_keyboard():
        yield wait
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield partial(_is_pressed, keyboard)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _has_keyboard() -> bool:
    """Whether keys come here; a shell's background jobs get none, and may not ask for them."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _is_pressed(keyboard: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([keyboard], [], [], left)
        # Nothing at all comes from a terminal that is gone.
        if ready and os.read(keyboard, 1) in (b"q", b"Q", b""):
            return True
    return False
