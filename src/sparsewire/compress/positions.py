"""A code for which positions of a vector are sent, close to log2 binomial(universe, count) bits.

Gaps between positions in a Rice code (Rice, Plaunt, Adaptive variable-length coding, 1971), or
those between the positions that are not sent, where these are fewer. Neither the count nor the end
is part of the code.
"""

from __future__ import annotations

import numpy as np

from sparsewire import _core
from sparsewire.compress.marks import Marks
from sparsewire.errors import CompressError


def encode_positions(marks: Marks) -> bytes:
    """The code of these positions."""
    code = np.empty(_core.positions_bound(marks.universe, marks.count), np.uint8)
    size = _core.encode_positions(marks.words, marks.universe, marks.count, code)
    return code[:size].tobytes()


def decode_positions(payload: bytes | memoryview, count: int, universe: int) -> Marks:
    """`count` positions, at most `universe`, again; raises CompressError if malformed."""
    marks = Marks.none(universe)
    if not _core.decode_positions(payload, universe, count, marks.words):
        raise CompressError("malformed message: the positions do not fit the vector")
    marks.count = count
    return marks
