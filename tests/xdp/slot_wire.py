"""Datagrams of slots in plain Python, written from docs and papers and not from the sources."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field, replace

import numpy as np

CONTRIBUTION, RESULT, RECALL, HELLO, WELCOME = 1, 2, 3, 4, 5
NO_BLOCK = 0xFFFFFFFF
INT32, SUM = 4, 0
HEAD = "<BBHHBBQIBBHQQ"
MASK = 0xFFFFFFFFFFFFFFFF
# More than a datagram has that the aggregator takes.
PAIRS = 200
SLOTS_IN_RUN = 8


@dataclass(frozen=True)
class Slotted:
    """A datagram with one column; no values: none are present."""

    job: int
    worker: int
    slot: int
    round: int
    next: int = NO_BLOCK
    exponent: int = 0
    values: tuple[int, ...] = ()
    kind: int = CONTRIBUTION
    epoch: int = 1
    block: int = 16
    version: int = 2
    columns: int = 1
    present: int | None = None
    dtype: int = INT32
    op: int = SUM
    key: bytes = field(default=bytes(32), repr=False)
    above: bool = False
    """Whether it is between a root and its racks."""

    def encoded(self) -> bytes:
        body = struct.pack("<IBBH", self.next, self.exponent, 0, 0)
        body += np.array(self.values, dtype="<i4").tobytes()
        present = (1 if self.values else 0) if self.present is None else self.present
        parts = (self.version, self.kind, self.worker, self.slot, self.columns, present, self.job)
        parts += (self.epoch, self.dtype, self.op, self.block, self.round)
        key = way_key(self.key, self.kind, self.above)
        return struct.pack(HEAD, *parts, tag(key, struct.pack(HEAD[:-1], *parts), body)) + body

    def but(self, **changes: object) -> Slotted:
        return replace(self, **changes)  # type: ignore[arg-type]


def flow_of(slot: int, flows: int) -> int:
    """By which of so many flows the datagrams of a slot go, and a greeting with its first."""
    return slot // SLOTS_IN_RUN % flows


def way_key(key: bytes, kind: int, above: bool) -> bytes:
    """Of what goes this way: keys of all ways are others, and here drawn from one."""
    up = kind in (CONTRIBUTION, HELLO)
    return hashlib.sha256(key + bytes([up, above])).digest()


def way_keys(key: bytes, *, above: bool = False) -> tuple[bytes, bytes]:
    """Up and down."""
    return way_key(key, HELLO, above), way_key(key, WELCOME, above)


def decoded(data: bytes, key: bytes, *, above: bool = False) -> Slotted:
    """Raises AssertionError where the tag is wrong or the length is not what it says."""
    version, kind, worker, slot, columns, present, *rest = struct.unpack_from(HEAD, data)
    job, epoch, dtype, op, block, round_, its_tag = rest
    assert its_tag == tag(way_key(key, kind, above), data[:32], data[40:]), "wrong tag"
    assert len(data) == 48 + 4 * block * present
    next_, exponent = struct.unpack_from("<IB", data, 40)
    values = tuple(np.frombuffer(data, "<i4", offset=48).tolist())
    return Slotted(
        job, worker, slot, round_, next_, exponent, values, kind, epoch, block, version, columns,
        None, dtype, op, key, above,
    )  # fmt: skip


def tag(key: bytes, header: bytes, body: bytes) -> int:
    """NH of the body, and then SipHash-1-3 of it and the header's first 32 bytes."""
    keyed = np.frombuffer(body, "<u4") + nh_key(key)[: len(body) // 4]
    pairs = keyed.astype(np.uint64).reshape(-1, 2)
    nh = int((pairs[:, 0] * pairs[:, 1]).sum(dtype=np.uint64))
    words = [*struct.unpack("<4Q", header), nh, len(body)]
    return sip13(key[:16], struct.pack("<6Q", *words))


_nh_keys: dict[bytes, np.ndarray] = {}


def nh_key(key: bytes) -> np.ndarray:
    if key not in _nh_keys:
        drawn = [sip13(key[16:], struct.pack("<Q", number)) for number in range(PAIRS)]
        _nh_keys[key] = np.frombuffer(struct.pack(f"<{PAIRS}Q", *drawn), "<u4")
    return _nh_keys[key]


def sip13(key: bytes, message: bytes) -> int:
    """As in the paper: compression of 8 bytes at a time by one round, three rounds at the end."""
    k = struct.unpack("<2Q", key)
    phrase = struct.unpack(">4Q", b"somepseudorandomlygeneratedbytes")
    v = [k[i % 2] ^ eight for i, eight in enumerate(phrase)]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def sip_round(v: list[int]) -> None:
    for a, b, by in ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17)):
        v[a] = (v[a] + v[b]) & MASK
        v[b] = left(v[b], by) ^ v[a]
        if b == 1:
            v[a] = left(v[a], 32)


def left(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK
