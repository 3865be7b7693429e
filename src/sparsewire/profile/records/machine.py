"""The machine that a rank is on: which one, and how many of its processors it may use."""

from __future__ import annotations

import os
from pathlib import Path

# Network namespaces and containers have names of their own; the kernel below them is one.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def identity() -> str | None:
    """An identity that all ranks on a machine share; None if it is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def cores() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
