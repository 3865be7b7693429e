"""Pictures of versions that came: bytes, and the pause of the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsewire.tools.weights.pulling import Pulled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def picture(pulled: Sequence[Pulled]) -> Figure:
    """Over versions: the bytes of each beside those of all weights, and seconds of its parts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    sizes, pauses = figure.subplots(1, 2)
    versions = [each.version for each in pulled]
    sizes.plot(versions, [each.nbytes for each in pulled], "o-", markersize=3, label="came")
    sizes.plot(versions, [each.whole_nbytes for each in pulled], "--", label="all weights")
    sizes.set(xlabel="version", ylabel="bytes", yscale="symlog")
    sizes.legend()
    for name in ("pause_s", "verify_s", "stage_s"):
        label = name.removesuffix("_s")
        pauses.plot(
            versions, [getattr(each, name) for each in pulled], "o-", markersize=3, label=label
        )
    pauses.set(xlabel="version", ylabel="seconds", yscale="log")
    pauses.legend()
    return figure
