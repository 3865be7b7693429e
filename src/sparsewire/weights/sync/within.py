"""A limit of time that holds: asyncio's own may swallow that its caller was cancelled.

Until Python 3.12 `asyncio.wait_for` returns the result of what ended just as its caller was
cancelled, and the caller goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(limit: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises; raises TimeoutError, an OSError, after `limit` seconds."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=limit)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # What nobody asks for would be logged.
    raise TimeoutError(f"nothing came for {limit:.3g} s")
