"""Vectors cut into one part for each member, at borders of chunks, and the operators of the parts:
made for their sizes, by text or by a function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from sparsewire.compress import Compressor, parse
from sparsewire.compress.largest import Threshold

CHUNK = 4096
"""Elements between the borders of parts, if nothing else is said: 64 x 64, SparseLoCo's chunk."""

EXACT = "exact"
"""Names the operator that loses nothing: float32 values and coded positions of what is not zero."""

MakeOperator = Callable[[int], Compressor]


def maker_of(operator: str | MakeOperator) -> MakeOperator:
    """What makes an operator for vectors of so many elements.

    A text is "exact" or one that `sparsewire.compress.parse` takes. Raises CompressError when it is
    used, not here.
    """
    if callable(operator):
        return operator
    return exact if operator == EXACT else lambda elements: parse(operator, elements)


def exact(elements: int) -> Compressor:
    """The operator called "exact"."""
    return Threshold(elements, 0.0)


def parts_of(elements: int, members: int, chunk: int = CHUNK) -> list[slice]:
    """The part of each member, in rank order: whole chunks, as even as they can be.

    Some are empty if there are fewer chunks than members. Only the last chunk may be short.
    """
    chunks = -(-elements // chunk)
    borders = [min(rank * chunks // members * chunk, elements) for rank in range(members + 1)]
    return [slice(*pair) for pair in pairwise(borders)]
