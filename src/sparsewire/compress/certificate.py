"""How much of one vector an operator kept: a contraction that is measured, beside the known one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsewire.compress.compressor import Compressor, finite
from sparsewire.compress.marks import Blocks


def certificate(operator: Compressor, x: NDArray[Any], code: Any) -> float:
    """1 - ||x - y||^2 / ||x||^2 of the vector y that `code` stands for; 1 of a vector of zeros.

    `x` has shape (dimension,), the operator's dtype, finite elements. Of a projection it is
    ||y||^2 / ||x||^2. It is computed as <y, 2 x - y> / ||x||^2, in float64, of the elements that
    are sent alone where the operator knows which these are.

    Raises CompressError for a code that stands for a vector that is not finite.
    """
    norm = float(Blocks(x.size).norms(x)[0])
    if norm == 0:
        return 1.0
    sent, kept = _sent(operator, x, code)
    y = sent / np.float64(norm)
    return float(np.dot(y, 2 * (kept / np.float64(norm)) - y))


def _sent(operator: Compressor, x: NDArray[Any], code: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """What is sent, and the elements of `x` there."""
    marked = operator.marked(code)
    if marked is None:
        return finite(operator.reconstruct(code)), x
    return marked.values, marked.blocks.gather(x, marked.marks)
