"""A live screen, which a command draws again and again until Ctrl-C or the key q. Lines that do
not fit are left out where they matter least.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.segment import Segment

Pause = Callable[[float], bool]
"""Waits for so many seconds; true, and at once, where somebody wants to end."""

Line = list["Segment"]


@dataclass(frozen=True)
class Frame:
    """One screen: tables, and below them the findings."""

    tables: RenderableType
    findings: RenderableType = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from filter(None, (self.tables, self.findings))


@dataclass(frozen=True)
class Screenful:
    """A frame that fits the screen: where it is too small, the findings stay in sight, on half of
    it at least if they need so much, and so does the hint below them.
    """

    frame: Frame
    hint: str = "q ends this"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import SegmentLines
        from rich.text import Text

        def lines(part: RenderableType) -> list[Line]:
            return console.render_lines(part, options.reset_height()) if part else []

        below = lines(Text(self.hint, "dim"))
        room = options.max_height - len(below)
        tables = lines(self.frame.tables)
        found = _fitted(lines(self.frame.findings), max(room // 2, room - len(tables)), lines)
        shown = _fitted(tables, room - len(found), lines)
        yield SegmentLines([*shown, *found, *below], new_lines=True)


def _fitted(
    lines: list[Line], room: int, rendered: Callable[[RenderableType], list[Line]]
) -> list[Line]:
    """The lines that fit; the last one tells how many are left out."""
    if len(lines) <= room:
        return lines
    kept = lines[: max(0, room - 1)]
    told = rendered(f"... {len(lines) - len(kept)} more lines do not fit")
    return [*kept, *told][: max(0, room)]


def wait(seconds: float) -> bool:
    """The pause of those whom no key can end."""
    time.sleep(seconds)
    return False


def show_live(frames: Callable[[Pause], Iterator[Frame]]) -> None:
    """Show each frame in the place of the one before, and leave the last one where all end."""
    from rich.live import Live

    from sparsewire.tools.experiment.report import report_console

    console, last = report_console(), None
    is_seen = console.is_terminal
    with (
        contextlib.suppress(KeyboardInterrupt),
        _keys() as pause,
        Live(console=console, auto_refresh=False, screen=is_seen) as live,
    ):
        for last in frames(pause):
            live.update(Screenful(last) if is_seen else last, refresh=True)
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
