"""Pictures of versions that came: bytes, and the pause of the reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparsewire.tools.weights.pulling import Pulled
from sparsewire.weights.readers.staged import Seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PARTS: dict[str, Callable[[Seconds], float]] = {
    "pause": lambda seconds: seconds.applying,
    "verify": lambda seconds: seconds.verifying,
    "stage": lambda seconds: seconds.staging,
}


def picture(pulled: Sequence[Pulled]) -> Figure:
    """Over versions: the bytes of each beside those of all weights, and seconds of its parts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    sizes, pauses = figure.subplots(1, 2)
    versions = [each.version for each in pulled]
    sizes.plot(versions, [each.way.nbytes for each in pulled], "o-", markersize=3, label="came")
    sizes.plot(versions, [each.nbytes for each in pulled], "--", label="all weights")
    sizes.set(xlabel="version", ylabel="bytes", yscale="symlog")
    sizes.legend()
    for label, seconds in _PARTS.items():
        taken = [seconds(each.seconds) for each in pulled]
        pauses.plot(versions, taken, "o-", markersize=3, label=label)
    pauses.set(xlabel="version", ylabel="seconds", yscale="log")
    pauses.legend()
    return figure
