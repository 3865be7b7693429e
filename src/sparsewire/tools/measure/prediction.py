"""The engine's prediction of a sparse all_reduce: the algorithm, and its seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from sparsewire import _core
from sparsewire.options import LinkFigures


@dataclass(frozen=True)
class Prediction:
    """The algorithm that was asked for, the one that runs, and the seconds it is said to take.

    `link` holds the figures behind it.
    """

    algorithm: str
    chosen: str
    seconds: float
    link: LinkFigures


def predict(
    link: LinkFigures,
    algorithm: str,
    length: int,
    element_bytes: int,
    elements: Sequence[int],
    hosts: int | None = None,
) -> Prediction:
    """Predict for vectors of `length`; `elements` is how many of them each rank names.

    `hosts` is the number of hosts where ranks share some; by default each has its own.
    """
    load = (length, element_bytes, elements, hosts or len(elements), *link)
    code = _core.ALGORITHMS[algorithm]
    if algorithm == "auto":
        code = _core.choose(*load)
    chosen = next(name for name, known in _core.ALGORITHMS.items() if known == code)
    return Prediction(algorithm, chosen, _core.predict(code, *load), link)
