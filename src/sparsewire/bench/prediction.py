"""What the engine's cost model says about a sparse all_reduce: which algorithm, and how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsewire import Communicator, _core


@dataclass(frozen=True)
class Prediction:
    """The algorithm that was asked for, the one that runs, and the seconds it is said to take.

    `link` holds the figures behind it: seconds of a message, of a byte, and of an element.
    """

    algorithm: str
    chosen: str
    seconds: float
    link: tuple[float, float, float]


def predict(
    communicator: Communicator,
    algorithm: str,
    length: int,
    element_bytes: int,
    elements: Sequence[int],
) -> Prediction:
    """Predict by the link's figures in use; `elements` is how many each rank names."""
    link = communicator._core.link()
    load = (length, element_bytes, elements, *link)
    code = _core.ALGORITHMS[algorithm]
    if algorithm == "auto":
        code = _core.choose(*load)
    chosen = next(name for name, known in _core.ALGORITHMS.items() if known == code)
    return Prediction(algorithm, chosen, _core.predict(code, *load), link)
