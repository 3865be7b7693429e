"""The console that commands print their reports to: the terminal, or a width that fits a page."""

from __future__ import annotations

from rich.console import Console

_PAGE_WIDTH = 100


def report_console() -> Console:
    """A console as wide as the terminal; 100 columns where the output is no terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_PAGE_WIDTH, highlight=False)
