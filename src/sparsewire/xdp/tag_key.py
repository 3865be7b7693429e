"""The key of a job's tags in the form that the programs take; core/wire/tag.cpp draws the same."""

from __future__ import annotations

import struct

KEY_BYTES = 32
# Words for the record of a column and the largest block.
WORDS = 2 + 256

_MASK = (1 << 64) - 1


def tag_key(key: bytes) -> bytes:
    """SipHash's key, and the words of NH's, from the 32 bytes that a job has; raises ValueError."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of a job has {KEY_BYTES} bytes, and not {len(key)}")
    seed0, seed1 = struct.unpack("<2Q", key[16:])
    pairs = (siphash(seed0, seed1, [number]) for number in range(WORDS // 2))
    return key[:16] + struct.pack(f"<{WORDS // 2}Q", *pairs)


def siphash(key0: int, key1: int, words: list[int]) -> int:
    """SipHash-1-3 of 64-bit words (Aumasson, Bernstein, INDOCRYPT 2012)."""
    state = (
        key0 ^ 0x736F6D6570736575,
        key1 ^ 0x646F72616E646F6D,
        key0 ^ 0x6C7967656E657261,
        key1 ^ 0x7465646279746573,
    )
    for word in [*words, 8 * len(words) << 56 & _MASK]:
        v0, v1, v2, v3 = _round(*state[:3], state[3] ^ word)
        state = v0 ^ word, v1, v2, v3
    state = *state[:2], state[2] ^ 0xFF, state[3]
    for _ in range(3):
        state = _round(*state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = v0 + v1 & _MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = v2 + v3 & _MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = v0 + v3 & _MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = v2 + v1 & _MASK
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK
