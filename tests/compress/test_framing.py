"""Messages come out of the rows of a sparse vector as they went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparsewire.compress.message import framed, unframed


@given(st.binary(max_size=600))
def test_framing_keeps_the_bytes(message: bytes) -> None:
    vector = framed(message)
    assert unframed(vector.indices, vector.values) == message
    assert vector.values.nbytes < len(message) + 8 + 256


@given(st.lists(st.sampled_from([b"", bytes(300), b"a" * 200]), max_size=9).map(b"".join))
def test_rows_of_zeros_may_be_missing(message: bytes) -> None:
    vector = framed(message)
    named = vector.values.any(axis=1)
    assert unframed(vector.indices[named], vector.values[named]) == message
