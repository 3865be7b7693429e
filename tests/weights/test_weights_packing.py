"""Chunks whose bytes repeat are packed, others are not, and whatever a frame says is bounded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire._core import encode_delta, write_prepared
from sparsewire.weights.versions.chunks import (
    apply_chunk,
    changes_of,
    encode_chunk,
    is_code,
    prepare_chunk,
)
from sparsewire.weights.versions.packing import Packing, packing_of, unpack

zstandard = pytest.importorskip("zstandard")

ELEMENTS = 1 << 17
Chunk = NDArray[np.uint8]


def weights(elements: int = ELEMENTS, seed: int = 0) -> NDArray[np.uint16]:
    """bfloat16 of a normal distribution."""
    values = np.random.default_rng(seed).standard_normal(elements, np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def alternating() -> NDArray[np.uint16]:
    random = np.random.default_rng(1)
    return np.resize(random.integers(1, 2**16, 1024, dtype=np.uint16), ELEMENTS)


CASES = {
    "a row, tiled": (Packing.FRESH, np.resize(weights(1024), ELEMENTS)),
    "a longer piece, tiled": (Packing.FRESH, np.resize(weights(10_000), ELEMENTS)),
    "signs turned": (Packing.XOR, weights() ^ 0x8000),
    "a pattern, everywhere": (Packing.XOR, weights() ^ alternating()),
    "some bits of every third": (Packing.XOR, weights() ^ np.resize([0x5A5, 0, 0], ELEMENTS)),
}


def chunk_of(bits: NDArray[Any]) -> Chunk:
    return np.ascontiguousarray(bits.astype(np.uint16)).view(np.uint8)


@pytest.mark.parametrize("case", CASES)
def test_what_repeats_is_packed(case: str) -> None:
    packing, bits = CASES[case]
    base, fresh = chunk_of(weights()), chunk_of(bits)
    code, changed = encode_chunk(base, fresh, 2, True)
    native, _ = encode_delta(base, fresh, 2, True)
    assert packing_of(code) is packing
    assert len(code) < len(native) / 4
    assert changed == (base.view(np.uint16) != fresh.view(np.uint16)).sum()
    check_round_trip(code, base, fresh)


def check_round_trip(code: bytes, base: Chunk, fresh: Chunk) -> None:
    assert is_code(code, len(base) // 2, 2, True)
    applied, written = base.copy(), base.copy()
    assert apply_chunk(code, applied, 2, True)
    assert (applied == fresh).all()
    prepared = prepare_chunk(code, base, 2, True)
    assert prepared is not None
    for _ in range(2):
        assert write_prepared(prepared, written, 2)
        assert (written == fresh).all()
    told = changes_of(code, len(base) // 2, 2, True)
    assert told is not None
    assert told.form == ("xor" if packing_of(code) is Packing.XOR else "whole")
    assert ((base ^ told.payload if told.form == "xor" else told.payload) == fresh).all()


@pytest.mark.parametrize("share", [0.001, 0.1, 1.0])
def test_what_does_not_repeat_is_not_packed(share: float) -> None:
    base = weights()
    moves = np.random.default_rng(2).random(ELEMENTS) < share
    fresh = chunk_of(np.where(moves, weights(seed=3), base))
    code, _ = encode_chunk(chunk_of(base), fresh, 2, True)
    assert packing_of(code) is None
    assert code == encode_delta(chunk_of(base), fresh, 2, True)[0]


def frame_of(content: bytes, **options: Any) -> bytes:
    return bytes([Packing.FRESH]) + zstandard.ZstdCompressor(**options).compress(content)


def skippable(content: bytes) -> bytes:
    return (
        bytes([Packing.FRESH]) + b"\x50\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content
    )


REFUSED = {
    "longer": frame_of(bytes(2001)),
    "shorter": frame_of(bytes(1999)),
    "of no size": frame_of(bytes(2000), write_content_size=False),
    "with more behind": frame_of(bytes(2000)) + b"\0",
    "two frames": frame_of(bytes(1000)) + frame_of(bytes(1000))[1:],
    "cut off": frame_of(bytes(2000))[:-1],
    "none": bytes([Packing.FRESH]),
    "no frame": bytes([Packing.XOR]) + b"no frame of zstd at all",
    "skipped": skippable(bytes(2000)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_frame_of_the_chunk_is_refused(case: str) -> None:
    chunk = np.ones(2000, np.uint8)
    assert not is_code(REFUSED[case], 1000, 2, True)
    assert not apply_chunk(REFUSED[case], chunk, 2, True)
    assert prepare_chunk(REFUSED[case], chunk, 2, True) is None
    assert changes_of(REFUSED[case], 1000, 2, True) is None
    assert (chunk == 1).all()


def test_a_frame_that_says_too_much_takes_no_memory() -> None:
    # A frame's header: one segment of 2^40 bytes, and nothing.
    says = bytes([Packing.FRESH]) + b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")
    assert zstandard.get_frame_parameters(says[1:]).content_size == 1 << 40
    tracemalloc.start()
    try:
        assert unpack(says + bytes(3), 2000) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.randoms(use_true_random=False))
def test_damaged_frames_are_applied_or_refused(random: Any) -> None:
    base = np.zeros(4000, np.uint8)
    code = bytearray(frame_of(bytes(range(200)) * 20, write_checksum=False))
    for _ in range(random.randint(1, 3)):
        code[random.randrange(1, len(code))] ^= 1 << random.randrange(8)
    chunk = base.copy()
    taken = apply_chunk(bytes(code), chunk, 2, True)
    assert taken == is_code(bytes(code), 2000, 2, True)
    assert taken or not chunk.any()
