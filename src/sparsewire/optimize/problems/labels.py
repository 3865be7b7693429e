"""Turns the classes of a data set into -1 and +1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparsewire.errors import OptimizeError

Floats = npt.NDArray[np.float64]

# More distinct labels than this are measurements rather than classes.
MAX_CLASSES = 1000


def positive_classes(labels: Floats, wanted: str | None = None) -> Floats:
    """The classes that become +1, ascending, out of `labels` of shape (rows,).

    `wanted` lists them, separated by commas. Without it the classes are sorted and the upper half
    is taken: of two classes the larger one, of 20 the last 10, of an odd number the middle one too.
    Raises OptimizeError unless that leaves something on both sides.
    """
    classes: Floats = np.unique(labels)
    if len(classes) < 2:
        raise OptimizeError(f"all rows have the label {classes[0]:g}: two classes are needed")
    if len(classes) > MAX_CLASSES:
        raise OptimizeError(
            f"there are {len(classes)} different labels, so this is no classification: "
            "use data with classes as labels"
        )
    if wanted is None:
        return classes[len(classes) // 2 :]
    chosen = _parse(wanted)
    missing = [f"{label:g}" for label in chosen if label not in classes]
    if missing:
        raise OptimizeError(f"--positive {', '.join(missing)}: no such class; {_listed(classes)}")
    if len(chosen) == len(classes):
        raise OptimizeError("--positive names every class: leave at least one out")
    return chosen


def signs(labels: Floats, positive: Floats) -> Floats:
    """+1 for every label in `positive`, -1 for the others; shape (rows,)."""
    return np.where(np.isin(labels, positive), 1.0, -1.0)


def _parse(text: str) -> Floats:
    try:
        return np.unique([float(entry) for entry in text.split(",")])
    except ValueError:
        raise OptimizeError(
            f"--positive {text!r} is no list of classes: write for example 1,2,5"
        ) from None


def _listed(classes: Floats) -> str:
    shown = ", ".join(f"{label:g}" for label in classes[:20])
    return f"there are {shown}" + (", ..." if len(classes) > 20 else "")
