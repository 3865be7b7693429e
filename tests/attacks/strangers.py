"""What a hostile stranger can do to a dedicated aggregator: one strike of each kind, by name."""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from sparsewire.errors import Error
from sparsewire.meeting.contact.handshake import ANY_PEER, Hello, Role, introduce, new_nonce
from sparsewire.meeting.contact.sockets import receive_exactly
from sparsewire.options import Address

HELLO, OPEN, SEGMENT, CANCEL, REFUSE = 1, 2, 3, 6, 9
NONE = 2**64 - 1
PATIENCE_S = 2.0

Strike = Callable[[Address], list[socket.socket]]
"""Does its worst at once, and returns the connections that it would keep open."""


def frame(
    kind: int,
    payload: bytes = b"",
    seq: int = 0,
    chunk: int = NONE,
    next_: int = NONE,
    form: int = 0,
) -> bytes:
    return struct.pack("<BBBBIQQQ", kind, form, 0, 0, len(payload), seq, chunk, next_) + payload


def greeting(window: int = 1 << 16, world_size: int = 2) -> bytes:
    fields = (world_size, 1, 1, 256, window, 3_600_000, 0, 0, 0)
    return frame(HELLO, struct.pack("<9I", *fields))


def opening(seq: int = 0, next_: int = 0) -> bytes:
    """Of a sparse sum over 2^32 float32, whose results shall be dense."""
    descriptor = struct.pack("<BBBBIQBBHI24x", 0, 0, 1, 2, 1, 1 << 32, 0, 0, 0, 0)
    return frame(OPEN, descriptor, seq, next_=next_)


def promise(size: int = 500_000) -> bytes:
    """The header of a large segment that never comes."""
    return struct.pack("<BBBBIQQQ", SEGMENT, 1, 0, 0, size, 0, 0, 1)


def crumb(chunk: int) -> bytes:
    """One zero: six bytes, whose result takes 256 KiB."""
    return frame(SEGMENT, bytes(6), 0, chunk, chunk + 1, 4)


def prove(address: Address, job: int, rank: int = 0, world_size: int = 2) -> socket.socket:
    """A connection as a worker of a job of one's own; raises Error or OSError."""
    connection = socket.create_connection(address, PATIENCE_S)
    hello = Hello(Role.WORKER, job, 0, rank, ANY_PEER, 0, world_size, new_nonce())
    conversation = introduce(hello, job.to_bytes(32, "big"), may_register=True)
    try:
        message, size = next(conversation)
        while True:
            connection.sendall(message)
            message, size = conversation.send(receive_exactly(connection, size))
    except StopIteration:
        return connection
    except BaseException:
        connection.close()
        raise


def say(*words: bytes, world_size: int = 2) -> Strike:
    """A proved worker that says this, as far as it is listened to."""

    def strike(address: Address) -> list[socket.socket]:
        worker = prove(address, secrets.randbits(64), world_size=world_size)
        with suppress(OSError):
            worker.sendall(b"".join(words))
        return [worker]

    return strike


def connect_only(address: Address) -> list[socket.socket]:
    return [socket.create_connection(address, PATIENCE_S)]


def stop_in_the_handshake(address: Address) -> list[socket.socket]:
    (connection,) = connect_only(address)
    hello = Hello(Role.WORKER, 1, 0, 0, ANY_PEER, 0, 2, new_nonce())
    connection.sendall(hello.encode())
    return [connection]


def never_read(address: Address) -> list[socket.socket]:
    job = secrets.randbits(64)
    workers = [prove(address, job, rank) for rank in (0, 1)]
    for worker in workers:
        with suppress(OSError):
            words = [greeting(1 << 18), opening(), *map(crumb, range(900))]
            worker.sendall(b"".join(words))
    return workers


def _garbage() -> bytes:
    """Begins with no kind of frame: by chance it might, and be called something else then."""
    return b"\xff" + secrets.token_bytes(4095)


STRIKES: dict[str, Strike] = {
    "garbage": say(_garbage()),
    "garbage behind a hello": say(greeting(), _garbage()),
    "cancels": say(greeting(), *(frame(CANCEL, seq=seq) for seq in range(20_000))),
    "cancels far away": say(greeting(), *(frame(CANCEL, seq=seq << 40) for seq in range(1000))),
    "refuses": say(greeting(), *(frame(REFUSE, bytes(8), seq) for seq in range(20_000))),
    "window of 1 GiB": say(greeting(1 << 30)),
    "many ranks": say(greeting(1 << 20, 1000), world_size=1000),
    "opens without segments": say(greeting(), *(opening(seq) for seq in range(5000))),
    "promise": say(greeting(), opening(), promise()),
    "promise of nothing": say(greeting(), promise()),
    "a proof and silence": say(),
    "a hello and silence": say(greeting()),
    "connect only": connect_only,
    "half a handshake": stop_in_the_handshake,
    "never read": never_read,
}


def attempt(strike: Strike, address: Address) -> list[socket.socket]:
    """None where the aggregator turns it down, as it may."""
    with suppress(Error, OSError):
        return strike(address)
    return []
