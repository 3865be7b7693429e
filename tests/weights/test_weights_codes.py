"""Codes of chunks as Python has them: what they say, and what is made ready to be written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire._core import (
    DELTA_CHUNK,
    apply_delta,
    delta_changes,
    encode_delta,
    prepare_delta,
    write_prepared,
)

Versions = tuple[NDArray[Any], NDArray[Any], bool]


@st.composite
def versions(draw: st.DrawFn) -> Versions:
    """Bits of two versions, of which a share differs, by little or much; and whether they float."""
    width = draw(st.sampled_from((1, 2, 4, 8)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(0, 300))
    most = draw(st.sampled_from((2, 2 ** min(8 * width, 63))))
    share = draw(st.sampled_from((0.0, 0.03, 0.5, 1.0)))
    base = random.integers(0, 2**63, count, dtype=np.uint64).astype(f"u{width}")
    moves = random.integers(0, most, count, dtype=np.uint64).astype(f"u{width}")
    return base, base + moves * (random.random(count) < share), draw(st.booleans())


def ordered(bits: NDArray[Any], floating: bool) -> NDArray[Any]:
    """Numbers whose neighbours are neighbours of the values that the bits stand for."""
    top = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    return np.where(bits & top if floating else np.False_, bits ^ (top - bits.dtype.type(1)), bits)


def changed_by(
    base: NDArray[Any], floating: bool, form: str, positions: Any, payload: NDArray[Any]
) -> NDArray[Any]:
    """The new version, by what `delta_changes` says."""
    fresh = base.copy()
    if form == "steps":
        moved = ordered(base[positions], floating) + payload.astype(base.dtype)
        fresh[positions] = ordered(moved, floating)
    elif form == "values":
        fresh[positions] = payload.view(base.dtype)
    elif form == "whole":
        fresh[:] = payload.view(base.dtype)
    return fresh


@given(versions())
def test_a_code_tells_what_changed(both: Versions) -> None:
    base, fresh, floating = both
    code, _ = encode_delta(base, fresh, base.itemsize, floating)
    told = delta_changes(code, len(base), base.itemsize, floating)
    assert told is not None
    assert (changed_by(base, floating, *told) == fresh).all()
    assert told[1] is None or (told[1] == np.flatnonzero(base != fresh)).all()


@given(versions())
def test_a_prepared_change_writes_the_version_and_again(both: Versions) -> None:
    base, fresh, floating = both
    code, changed = encode_delta(base, fresh, base.itemsize, floating)
    prepared = prepare_delta(code, base, base.itemsize, floating)
    assert prepared is not None
    assert len(prepared) <= 4 + min(changed * (4 + base.itemsize), base.nbytes)
    written = base.copy()
    for _ in range(2):
        assert write_prepared(prepared, written, base.itemsize)
        assert (written == fresh).all()


@given(versions(), st.randoms(use_true_random=False))
def test_what_is_no_code_is_refused_alike(both: Versions, random: Any) -> None:
    base, fresh, floating = both
    code = bytearray(encode_delta(base, fresh, base.itemsize, floating)[0])
    code[random.randrange(len(code))] ^= 1 << random.randrange(8)
    applied, written = base.copy(), base.copy()
    is_code = apply_delta(bytes(code), applied, base.itemsize, floating)
    told = delta_changes(bytes(code), len(base), base.itemsize, floating)
    prepared = prepare_delta(bytes(code), base, base.itemsize, floating)
    assert (told is not None) == (prepared is not None) == is_code
    if prepared is not None:
        assert write_prepared(prepared, written, base.itemsize)
    assert (written == applied).all()


def test_a_prepared_change_of_another_chunk_is_refused() -> None:
    base = np.zeros(100, np.uint16)
    fresh = base.copy()
    fresh[[3, 99]] = 7
    prepared = prepare_delta(encode_delta(base, fresh, 2, True)[0], base, 2, True)
    assert prepared is not None
    for wrong in (b"", prepared[:-1], prepared + b"\0"):
        assert not write_prepared(wrong, base, 2)
    assert not write_prepared(prepared, base[:99], 2)
    assert not write_prepared(prepared, base.view(np.uint8)[:100], 1)
    assert not base.any()


def test_sizes_are_checked() -> None:
    base = np.zeros(4, np.uint16)
    with pytest.raises(ValueError, match="DELTA_CHUNK"):
        delta_changes(b"\0", DELTA_CHUNK + 1, 2, True)
    with pytest.raises(ValueError, match="1, 2, 4 or 8"):
        prepare_delta(b"\0", base, 3, True)
    with pytest.raises(ValueError, match="whole elements"):
        write_prepared(b"", base.view(np.uint8)[:3], 2)
