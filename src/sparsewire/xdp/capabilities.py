"""The rights that the programs need, and that this process lacks."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_NET_ADMIN, _SYS_ADMIN, _PERFMON, _BPF = 12, 21, 38, 39

NEEDED = "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"


def missing_capabilities() -> list[str]:
    """Names, in order; none where the process has all, or the system does not tell."""
    held = _held()
    # The older right stands for both.
    loads = {"CAP_BPF": (_BPF, _SYS_ADMIN), "CAP_PERFMON": (_PERFMON, _SYS_ADMIN)}
    needed = {**loads, "CAP_NET_ADMIN": (_NET_ADMIN,)}
    return [name for name, bits in needed.items() if not any(held >> bit & 1 for bit in bits)]


def _held() -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return -1
    told = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return int(told[0], 16) if told else -1
