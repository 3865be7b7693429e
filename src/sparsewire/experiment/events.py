"""What workers tell whoever started them: events, one line of JSON each, on standard output."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

Event = dict[str, Any]
"""Its kind, under "event", and whatever belongs to it."""


class Tell(Protocol):
    """Tells one event: tell("step", number=3)."""

    def __call__(self, kind: str, /, **fields: object) -> None: ...


def claim_stdout() -> Tell:
    """Keep standard output for events; whatever a library prints goes to standard error."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(kind: str, /, **fields: object) -> None:
        lines.write(json.dumps({"event": kind, **fields}) + "\n")

    return tell
