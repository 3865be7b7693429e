"""Counts the bytes that a rank of a training sends, by the fairest means there is."""

from collections.abc import Callable

from sparsewire.measure.usage import Usage

Meter = Callable[[], int]


def meter(backend: str, interface: str | None) -> Meter | None:
    """A function that tells the bytes sent so far, or None where nothing counts them.

    An interface of the rank's own counts everything, for every backend alike. Without one, only
    sparsewire itself counts, and only what it sends.
    """
    if interface is not None:
        return lambda: Usage.now(interface).interface_bytes_sent
    if backend != "sparsewire":
        return None
    from sparsewire.torch import stats

    return lambda: stats()["bytes_sent"]
