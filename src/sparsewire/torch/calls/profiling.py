"""Has torch's profiler show for how long calls of the engine, and waits for them, hold up a thread.

An event ends before the call in which it began returns. An event as long as its operation could end
after the profiler has stopped, and would then be written into memory that is gone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.autograd.profiler import record_function

_NO_EVENT: AbstractContextManager[Any] = nullcontext()


def event(name: str) -> AbstractContextManager[Any]:
    """An event for the `with` block, if a profiler watches this thread."""
    is_watched: bool = torch._C._autograd._profiler_enabled()
    return record_function(f"sparsewire::{name}") if is_watched else _NO_EVENT
