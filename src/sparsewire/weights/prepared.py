"""A chunk's change made ready: written as a scatter of bits, however it came.

It is absolute, so writing it twice changes nothing.
"""

from __future__ import annotations

from sparsewire._core import encode_delta, prepare_delta, write_prepared
from sparsewire.errors import DataError
from sparsewire.weights.tensors import Bytes, Format

Change = bytes
"""Positions of elements, and their new bits: 4 bytes and an element's width for each."""


def change_of(code: bytes | memoryview, chunk: Bytes, form: Format) -> Change:
    """What a code makes of a chunk, which stays as it is. Raises DataError for what is no code."""
    change = prepare_delta(code, chunk, form.width, form.floating)
    if change is None:
        raise DataError("the message is damaged: the code of a chunk is none")
    return change


def change_between(chunk: Bytes, fresh: Bytes, form: Format) -> Change | None:
    """What makes a chunk another one; None where both are alike."""
    code, changed = encode_delta(chunk, fresh, form.width, form.floating)
    return change_of(code, chunk, form) if changed else None


def write_change(change: Change, chunk: Bytes, form: Format) -> None:
    """Make the chunk the new one, in place."""
    if not write_prepared(change, chunk, form.width):
        raise DataError("a prepared change is of another chunk")
