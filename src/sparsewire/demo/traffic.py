"""Counts the bytes that a rank of the demo sends, by the fairest means there is."""

from collections.abc import Callable

Meter = Callable[[], int]


def meter(backend: str, interface: str | None) -> Meter | None:
    """Return a function that tells the bytes sent so far, or None where nothing counts them.

    An interface of the rank's own counts everything, for every backend alike. Without one, only
    sparsewire itself counts, and only what it sends.
    """
    if interface is not None:
        return _interface_meter(interface)
    return _engine_meter() if backend == "sparsewire" else None


def _interface_meter(interface: str) -> Meter:
    from sparsewire.measure.usage import Usage

    return lambda: Usage.now(interface).interface_bytes_sent


def _engine_meter() -> Meter:
    from sparsewire.torch import stats

    return lambda: stats()["bytes_sent"]
