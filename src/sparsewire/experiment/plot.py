"""Pictures of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty picture, so many inches wide and high, whose parts find room for their labels."""
    # Importing matplotlib takes longer than most commands run.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
