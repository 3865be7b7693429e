"""How two ends of a fresh connection prove to each other that they know the same key.

Four messages of fixed size: hello, challenge, proof, verdict. Each end proves the key by an
HMAC-SHA256 over its own role, the hello and both nonces, so that nothing that was ever sent is of
use in another session or in the other direction. Both ends are generators that yield
`(bytes to send, number of bytes to read next)`: this file never touches a socket.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from sparsewire._core import WIRE_VERSION
from sparsewire.errors import AuthenticationError, ProtocolError

MAGIC = b"spwr"
KEY_SIZE = 32
NONCE_SIZE = 32
MAC_SIZE = 32
PROOF_SIZE = MAC_SIZE + KEY_SIZE
VERDICT_SIZE = 1
NO_KEY = bytes(KEY_SIZE)
# Tells a listener that could not prove itself so, and nothing of the key.
NO_PROOF = bytes(PROOF_SIZE)
ANY_PEER = 0xFFFFFFFF
# The limits of the programs in the kernel (bpf/job.h).
KERNEL_JOBS_MAX, KERNEL_WORKERS_MAX = 8, 32
HELLO = struct.Struct(f"!4sHBxQIIIHxxI{NONCE_SIZE}s")
CHALLENGE = struct.Struct(f"!4sBB{NONCE_SIZE}s{MAC_SIZE}s")

T = TypeVar("T")
Handshake = Generator[tuple[bytes, int], bytes, T]


class Role(IntEnum):
    """The role that the caller asks for."""

    PEER = 1
    WORKER = 2
    NEWCOMER = 3
    OBSERVER = 4
    READER = 5


class Reason(IntEnum):
    """Why a listener refuses a connection; ACCEPTED where it does not."""

    ACCEPTED = 0
    WRONG_VERSION = 1
    WRONG_JOB = 2
    WRONG_RANK = 3
    DUPLICATE = 4
    WRONG_PROOF = 5
    FULL = 6
    CROSSED = 7
    NESTED = 8
    KERNEL_FULL = 9
    KERNEL_RANKS = 10
    UNSERVED = 11


_ADVICE = {
    Reason.WRONG_VERSION: "it speaks another wire version: install the same sparsewire everywhere",
    Reason.WRONG_JOB: "it serves another job or another epoch of this job",
    Reason.WRONG_RANK: "rank, lane, world size or the order of aggregators do not fit the job",
    Reason.DUPLICATE: "another process has this rank already: start each rank once, "
    "and each job with a MASTER_PORT of its own",
    Reason.WRONG_PROOF: "the secrets differ: set the same SPARSEWIRE_SECRET everywhere",
    Reason.FULL: "it serves as many jobs as it may: raise --max-jobs or add an aggregator",
    Reason.CROSSED: "the other end calls this one itself",
    Reason.KERNEL_FULL: f"it adds up for {KERNEL_JOBS_MAX} jobs at most in its kernel, and has as "
    "many: add an aggregator, or start it with `--transport udp`",
    Reason.KERNEL_RANKS: f"it adds up for {KERNEL_WORKERS_MAX} ranks of a job at most in its "
    "kernel: start it with `--transport udp`, or one with `--parent` in each rack",
    Reason.UNSERVED: "it cannot serve the job, and its log says why",
    Reason.NESTED: "it is a rack's aggregator itself: `--parent` names the root",
}


class Refused(AuthenticationError):
    """The listening side turned the connection down; `reason` says why.

    On the listening side `hello` is the caller's, if it was read; nothing of it is proved.
    `detail` is for its log alone.
    """

    hello: Hello | None = None

    def __init__(self, reason: Reason, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"the connection was refused: {_ADVICE[reason]}")

    def __reduce__(self) -> tuple[type[Refused], tuple[Reason, str]]:
        return type(self), (self.reason, self.detail)


class Hello(NamedTuple):
    """The caller's account of itself. `peer` is the rank that it calls, or the number by which
    workers know the aggregator; ANY_PEER if it calls nobody in particular."""

    role: Role
    job: int
    epoch: int
    rank: int
    peer: int
    lane: int
    world_size: int
    nonce: bytes

    @property
    def caller(self) -> str:
        """The caller in words, for logs. Nothing of it is proved."""
        if self.role is Role.OBSERVER:
            return "an observer"
        if self.role is Role.READER:
            return "a reader of weights"
        return f"rank {self.rank}" + (f" of job {self.job:016x}" if self.job else "")

    def encode(self) -> bytes:
        return HELLO.pack(MAGIC, WIRE_VERSION, *self)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """Raises ProtocolError for what is no hello, Refused for one of another version."""
        if len(data) != HELLO.size or not data.startswith(MAGIC):
            raise ProtocolError("a connection did not open with a sparsewire hello")
        _, version, role, *others = HELLO.unpack(data)
        if version != WIRE_VERSION:
            raise Refused(Reason.WRONG_VERSION)
        try:
            known_role = Role(role)
        except ValueError:
            raise ProtocolError(f"a hello names the unknown role {role}") from None
        return cls(known_role, *others)


class Challenge(NamedTuple):
    """The listener's answer. With `register` it does not know the job yet and asks for its key."""

    reason: Reason
    register: bool
    nonce: bytes
    mac: bytes

    def encode(self) -> bytes:
        return CHALLENGE.pack(MAGIC, *self)

    @classmethod
    def decode(cls, data: bytes) -> Challenge:
        """Raises ProtocolError for what is no challenge."""
        if len(data) != CHALLENGE.size or not data.startswith(MAGIC):
            raise ProtocolError("the other end is not a sparsewire listener")
        _, reason, register, nonce, mac = CHALLENGE.unpack(data)
        if register > 1:
            raise ProtocolError(f"a challenge has the unknown mode {register}")
        return cls(_reason(reason), bool(register), nonce, mac)


class Guard(ABC):
    """A listener's rules: which callers may come in."""

    @abstractmethod
    def key_for(self, hello: Hello) -> bytes | None:
        """The key that this caller must prove; None to have it register one. Raises Refused."""

    def enter(self, hello: Hello, key: bytes) -> None:  # noqa: B027
        """Take note of a caller that has proved `key`. Raises Refused."""

    def leave(self, hello: Hello) -> None:  # noqa: B027
        """Forget a caller that entered, but was gone before it could be told."""


class GuardByRole(Guard):
    """Leaves each caller to the guard of the role that it wants; others are refused."""

    def __init__(self, guards: Mapping[Role, Guard]) -> None:
        self._guards = guards

    def key_for(self, hello: Hello) -> bytes | None:
        if hello.role not in self._guards:
            raise Refused(Reason.WRONG_JOB)
        return self._guards[hello.role].key_for(hello)

    def enter(self, hello: Hello, key: bytes) -> None:
        self._guards[hello.role].enter(hello, key)

    def leave(self, hello: Hello) -> None:
        self._guards[hello.role].leave(hello)


def derive(secret: bytes, label: str, context: bytes = b"") -> bytes:
    """A key for one purpose only, from which `secret` cannot be found."""
    return hmac.digest(secret, b"sparsewire " + label.encode() + b"\0" + context, "sha256")


def worker_key(shared_secret: bytes, job: int) -> bytes:
    """The key of a job's workers where aggregator and workers share a secret."""
    return derive(shared_secret, "worker", job.to_bytes(8, "big"))


def meeting_key(shared_secret: bytes) -> bytes:
    """The key that ranks prove to rank 0 when they meet. Without a secret it proves nothing."""
    return derive(shared_secret, "meeting")


def observer_key(shared_secret: bytes) -> bytes:
    """The key that observers prove to an aggregator. Without a secret it proves nothing."""
    return derive(shared_secret, "observer")


def reader_key(shared_secret: bytes) -> bytes:
    """The key of a publisher of weights and its readers. Without a secret it proves nothing."""
    return derive(shared_secret, "reader")


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_SIZE)


def introduce(hello: Hello, key: bytes, *, may_register: bool = False) -> Handshake[None]:
    """The connecting side; raises AuthenticationError or ProtocolError.

    It answers a listener that has not proved the key by a proof that is none, so that both ends
    know why it hangs up.
    """
    mine = hello.encode()
    challenge = Challenge.decode((yield mine, CHALLENGE.size))
    if challenge.reason is not Reason.ACCEPTED:
        raise Refused(challenge.reason)
    if challenge.register and not may_register:
        yield NO_PROOF, 0
        raise AuthenticationError(
            "the other end asks for the key instead of proving it: "
            "an aggregator needs the same SPARSEWIRE_SECRET as its workers"
        )
    expected = _prove(key, "listener", mine, challenge.nonce)
    if not challenge.register and not hmac.compare_digest(challenge.mac, expected):
        yield NO_PROOF, 0
        raise Refused(Reason.WRONG_PROOF)
    proof = _prove(key, "caller", mine, challenge.nonce)
    verdict = yield proof + (key if challenge.register else NO_KEY), VERDICT_SIZE
    if (reason := _reason(verdict[0])) is not Reason.ACCEPTED:
        raise Refused(reason)


def receive(guard: Guard) -> Handshake[Hello]:
    """The listening side; returns the hello of a caller that `guard` let in.

    Raises Refused, which has the hello, or ProtocolError.
    """
    theirs = yield b"", HELLO.size
    hello: Hello | None = None
    try:
        hello = Hello.decode(theirs)
        key = guard.key_for(hello)
    except Refused as refusal:
        refusal.hello = hello
        yield Challenge(refusal.reason, False, bytes(NONCE_SIZE), bytes(MAC_SIZE)).encode(), 0
        raise
    nonce = new_nonce()
    mac = bytes(MAC_SIZE) if key is None else _prove(key, "listener", theirs, nonce)
    proof = yield Challenge(Reason.ACCEPTED, key is None, nonce, mac).encode(), PROOF_SIZE
    if key is None:
        key = proof[MAC_SIZE:]
    try:
        if not hmac.compare_digest(proof[:MAC_SIZE], _prove(key, "caller", theirs, nonce)):
            raise Refused(Reason.WRONG_PROOF)
        guard.enter(hello, key)
    except Refused as refusal:
        refusal.hello = hello
        yield bytes([refusal.reason]), 0
        raise
    try:
        yield bytes([Reason.ACCEPTED]), 0
    except GeneratorExit:
        guard.leave(hello)
        raise
    return hello


def _prove(key: bytes, side: str, hello: bytes, nonce: bytes) -> bytes:
    return derive(key, side, hello + nonce)


def _reason(value: int) -> Reason:
    try:
        return Reason(value)
    except ValueError:
        raise ProtocolError(f"a listener answered with the unknown code {value}") from None
