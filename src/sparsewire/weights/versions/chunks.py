"""Codes of chunks, native or packed, as all else here uses them.

`width` is the bytes of an element, `floating` whether its bits are a floating-point number's, and
chunks are flat arrays of uint8. None of this holds the GIL for long.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import (
    apply_delta,
    delta_changes,
    encode_delta,
    is_delta,
    prepare_between,
    prepare_delta,
)
from sparsewire.weights.versions.packing import Packing, pack, packing_of, unpack
from sparsewire.weights.versions.tensors import Bytes

Code = bytes | memoryview

Form = Literal["same", "steps", "values", "whole", "xor"]
"""How a code says what changed: see `CodeContent`."""


class CodeContent(NamedTuple):
    """What the code of a chunk says.

    `positions` of the elements that changed ascend, for steps and values. `payload` is for steps
    int64, by how many representable numbers each moved; else uint8, `width` bytes an element: for
    values the new bits at the positions, for whole those of all elements, and for xor what changes
    the bits of all elements.
    """

    form: Form
    positions: NDArray[np.uint32] | None
    payload: NDArray[Any]


def encode_chunk(base: Bytes, fresh: Bytes, width: int, floating: bool) -> tuple[bytes, int]:
    """The shortest code of `fresh` over `base`, and how many elements changed."""
    code, changed = encode_delta(base, fresh, width, floating)
    return pack(base, fresh, len(code)) or code, changed


def apply_chunk(code: Code, chunk: Bytes, width: int, floating: bool) -> bool:
    """Make the base in `chunk` the new version; False, and no change, for what is no code of it."""
    if not (packing := packing_of(code)):
        return apply_delta(code, chunk, width, floating)
    if (content := unpack(code, len(chunk))) is None:
        return False
    chunk[:] = _fresh(packing, chunk, content)
    return True


def is_code(code: Code, count: int, width: int, floating: bool) -> bool:
    """Whether these bytes are the code of a chunk of `count` elements."""
    if packing_of(code):
        return unpack(code, count * width) is not None
    return is_delta(code, count, width, floating)


def prepare_chunk(code: Code, base: Bytes, width: int, floating: bool) -> bytes | None:
    """What `write_prepared` makes the base the new version with; None for what is no code of it."""
    if not (packing := packing_of(code)):
        return prepare_delta(code, base, width, floating)
    if (content := unpack(code, len(base))) is None:
        return None
    return prepare_between(base, _fresh(packing, base, content), width)


def changes_of(code: Code, count: int, width: int, floating: bool) -> CodeContent | None:
    """What the code of a chunk of `count` elements says; None for what is no code of it."""
    if packing := packing_of(code):
        content = unpack(code, count * width)
        form: Form = "whole" if packing is Packing.FRESH else "xor"
        return None if content is None else CodeContent(form, None, content)
    told = delta_changes(code, count, width, floating)
    return told and CodeContent(*told)


def _fresh(packing: Packing, base: Bytes, content: Bytes) -> Bytes:
    return content if packing is Packing.FRESH else base ^ content
