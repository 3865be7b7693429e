"""The circumstances of a measurement, written beside its numbers."""

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def conditions() -> dict[str, Any]:
    """Machine, versions and settings as plain JSON values."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("sparsewire", "torch", "numpy")},
        "simd": _simd_level(),
        "settings": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("SPARSEWIRE_") and name != "SPARSEWIRE_SECRET"
        },
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _simd_level() -> str:
    from sparsewire import _core

    return _core.simd_level()
