"""One rank's resources for lanes: links, and processors as affinity and control groups allow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sparsewire.meeting.contact.sockets import host_identity, machine_identity
from sparsewire.meeting.network.interfaces import slowest_mbit

_GROUPS = Path("/sys/fs/cgroup")


class Resources(NamedTuple):
    """One rank's resources for lanes."""

    host: str
    """Identity of the host: ranks of one host share links."""
    machine: str
    """Identity of the machine, whose processors its hosts share if they are containers."""
    processors: str
    """Processors on which the rank may run, as a mask in hexadecimal digits."""
    quota: float
    """Processors' time for all ranks of its host; 0 for no limit."""
    interfaces: int
    speed_mbit: int
    """Speed of the slowest interface; 0 if it is not known, or not needed."""


def own_resources(addresses: list[str]) -> Resources:
    """The resources of this process, which listens on `addresses`."""
    cores = os.sched_getaffinity(0)
    # Asking for the speed takes a while, and a second lane needs a third processor.
    speed_mbit = slowest_mbit(addresses) if len(cores) > 2 else 0
    mask = f"{sum(1 << core for core in cores):x}"
    return Resources(host_identity(), machine_identity(), mask, quota(), len(addresses), speed_mbit)


def quota(groups: Path = _GROUPS, own: Path = Path("/proc/self/cgroup")) -> float:
    """How many processors' time the control groups of this process may use; 0 for no limit."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        found += list(_quotas(groups, own))
    return min(found, default=0.0)


def _quotas(groups: Path, own: Path) -> Iterator[float]:
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):
            if not controllers:
                yield from _quota_in(groups / group / "cpu.max")
            elif "cpu" in controllers.split(","):
                yield from _quota_in(
                    groups / "cpu" / group / "cpu.cfs_quota_us",
                    groups / "cpu" / group / "cpu.cfs_period_us",
                )


def _quota_in(*files: Path) -> Iterator[float]:
    """Yield the processors that a quota allows, if the files hold one, and not "max" or -1."""
    with contextlib.suppress(OSError, ValueError):
        used, period = map(int, " ".join(file.read_text() for file in files).split())
        if used > 0:
            yield used / period
