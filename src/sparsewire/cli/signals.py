"""How a command ends on a signal: in good order, so that what it has started ends with it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import NoReturn


def exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal that would end Python at once, and leave processes behind."""
    sys.exit(128 + number)
