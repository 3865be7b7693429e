"""What an operator does with a normal vector, by which the costs of ways are predicted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsewire.compress import CompressError, Draws
from sparsewire.torch.outer.sums.formula import normal
from sparsewire.torch.outer.sums.parts import CHUNK, MakeOperator, parts_of
from sparsewire.torch.outer.sums.sums import Vector

_ENOUGH = 1 << 20
"""Elements from which on a part tells of the whole, if the operator works chunk by chunk."""


class Sample(NamedTuple):
    """An operator's message for a normal vector of `elements`."""

    elements: int
    message: float
    """Its bytes."""
    share: float
    """The share of the elements that it does not make zero."""
    is_cut: bool
    """Whether parts of whole chunks are coded alone as they are in the whole vector."""
    block: int | None
    """Elements of the blocks that its code marks; None if it marks none."""


def sampled(make: MakeOperator, elements: int, chunk: int = CHUNK) -> Sample:
    """What the operator does. Raises CompressError if it cannot be made for this many elements."""
    make(elements)
    try:
        few = _sampled(make, min(elements, _ENOUGH), chunk)
    except CompressError:  # For so few it cannot be made.
        return _sampled(make, elements, chunk)
    if not few.is_cut:
        return _sampled(make, elements, chunk)
    return few._replace(elements=elements, message=few.message * elements / few.elements)


def _sampled(make: MakeOperator, elements: int, chunk: int) -> Sample:
    operator, vector = make(elements), normal(elements)
    code = operator.code(vector, Draws(0))
    values, marked = operator.reconstruct(code), operator.marked(code)
    return Sample(
        elements=elements,
        message=len(operator.pack(code)),
        share=np.count_nonzero(values) / elements,
        is_cut=_is_cut(make, vector, values, chunk),
        block=marked and marked.blocks.size,
    )


def _is_cut(make: MakeOperator, vector: Vector, values: Vector, chunk: int) -> bool:
    try:
        return all(
            np.array_equal(make(vector[part].size).compress(vector[part], Draws(0)), values[part])
            for part in parts_of(vector.size, 3, chunk)
            if vector[part].size
        )
    except CompressError:  # Parts are too small for it.
        return False
