"""What a benchmark's crew tells its ranks, for tests that are such ranks themselves."""

from __future__ import annotations

SECRET = "0123456789abcdef"


def launched(port: int) -> dict[str, str]:
    """Where the ranks meet, and the job's secret."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {**place, "SPARSEWIRE_SECRET": SECRET}
