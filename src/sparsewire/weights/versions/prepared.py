"""A chunk's change made ready: written as a scatter of bits, however it came.

It is absolute, so writing it twice changes nothing.
"""

from __future__ import annotations

from sparsewire._core import prepare_between, write_prepared
from sparsewire.errors import DataError
from sparsewire.weights.versions.chunks import prepare_chunk
from sparsewire.weights.versions.tensors import Bytes, Format

_COUNT_BYTES = 4

Change = bytes
"""Positions of elements, and their new bits: 4 bytes and an element's width for each."""


def change_of(code: bytes | memoryview, chunk: Bytes, form: Format) -> Change:
    """What a code makes of a chunk, which stays as it is. Raises DataError for what is no code."""
    change = prepare_chunk(code, chunk, form.width, form.floating)
    if change is None:
        raise DataError("the message is damaged: the code of a chunk is none")
    return change


def change_between(chunk: Bytes, fresh: Bytes, form: Format) -> Change | None:
    """What makes a chunk another one; None where both are alike."""
    change = prepare_between(chunk, fresh, form.width)
    return change if len(change) > _COUNT_BYTES else None


def write_change(change: Change, chunk: Bytes, form: Format) -> None:
    """Make the chunk the new one, in place."""
    if not write_prepared(change, chunk, form.width):
        raise DataError("a prepared change is of another chunk")
