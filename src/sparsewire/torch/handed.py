"""The work that a backend made last, handed past torch to the caller who asked for it.

Where a backend is written in Python, torch wraps its works: of the wrapper only `wait` and
`get_future` reach the work, and futures lose the class that keeps callbacks in order and errors
typed.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch.distributed as dist

_last = threading.local()


def leave(work: dist.Work) -> None:
    """Leave a work for the caller, in the same thread. What torch made of it keeps it alive."""
    _last.work = weakref.ref(work)


def take(wrapped: Any) -> Any:
    """The work that was left behind `wrapped`, or `wrapped` where there is none."""
    left, _last.work = getattr(_last, "work", None), None
    work = left() if left is not None else None
    return wrapped if work is None else work
