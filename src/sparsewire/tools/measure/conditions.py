"""The circumstances of a measurement, written beside its numbers, and what it consumed."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from sparsewire import _core


def conditions() -> dict[str, Any]:
    """Machine, versions and settings as plain JSON values."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": proc_entry("cpuinfo", "model name") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("sparsewire", "torch", "numpy")},
        "simd": _core.simd_level(),
        "settings": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("SPARSEWIRE_") and name != "SPARSEWIRE_SECRET"
        },
    }


def proc_entry(file: str, name: str) -> str | None:
    """The first entry of a name in a file in /proc; None if it has none."""
    for line in Path("/proc", file).read_text().splitlines():
        found, _, value = line.partition(":")
        if found.strip() == name:
            return value.strip()
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Usage:
    """Counters of this process at one moment; only differences mean something."""

    user_cpu_s: float
    system_cpu_s: float
    interface_bytes_sent: int

    @classmethod
    def now(cls, interfaces: str) -> Usage:
        """Read the counters, of one interface or of all in a list with commas.

        One that does not exist counts as silent.
        """
        times = resource.getrusage(resource.RUSAGE_SELF)
        return cls(times.ru_utime, times.ru_stime, Traffic.now(interfaces).up)


class Traffic(NamedTuple):
    """Bytes that interfaces have sent and received so far; only differences mean something."""

    up: int
    down: int

    @classmethod
    def now(cls, interfaces: str) -> Traffic:
        """Read the counters, of one interface or of all in a list with commas.

        One that does not exist counts as silent.
        """
        # Unlike /sys/class/net, this file always shows the reader's own network namespace.
        read = [proc_entry("net/dev", each) for each in interfaces.split(",")]
        found = [counters.split() for counters in read if counters]
        return cls(sum(int(own[8]) for own in found), sum(int(own[0]) for own in found))


def cpu_seconds(process: int) -> float:
    """User and system time of another process so far; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold spaces; the times are fields 14 and 15 of proc(5).
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
