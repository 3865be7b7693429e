"""What a process has consumed so far: CPU time, and bytes its network interface sent."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Counters of this process at one moment; only differences mean something."""

    user_cpu_s: float
    system_cpu_s: float
    interface_bytes_sent: int

    @classmethod
    def now(cls, interface: str) -> Usage:
        """Read the counters; an interface that does not exist counts as silent."""
        times = resource.getrusage(resource.RUSAGE_SELF)
        return cls(times.ru_utime, times.ru_stime, _bytes_sent(interface))


def _bytes_sent(interface: str) -> int:
    # Unlike /sys/class/net, this file always shows the reader's own network namespace.
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == interface:
            return int(counters.split()[8])
    return 0


def cpu_seconds(process: int) -> float:
    """User and system time of another process so far; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold spaces; the times are fields 14 and 15 of proc(5).
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
