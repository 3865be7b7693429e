"""A connection between a reader and who serves it: documents of JSON, and runs of bytes.

Each has its length in 32 big-endian bits before it, and a document the CRC-32 of its bytes as well.
Both ends prove the secret first (meeting/contact/handshake.py).
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import zlib
from typing import Any

from sparsewire.errors import ProtocolError
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.contact.handshake import (
    ANY_PEER,
    Guard,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    new_nonce,
    reader_key,
    receive,
)
from sparsewire.meeting.contact.sockets import begin_connect, prepare
from sparsewire.options import Address
from sparsewire.weights.sync.within import within

Document = dict[str, Any]

_LENGTH = struct.Struct("!I")
# A run has a checksum in its message. A version's number has none: hence the sum of a document.
_HEAD = struct.Struct("!II")
# Names of a model with a hundred thousand tensors.
_DOCUMENT_MAX = 32 << 20
REQUEST_MAX = 64 << 10
HANDSHAKE_S = 5.0
# Who takes no byte for so long is gone, or never comes to it.
STUCK_S = 60


class Closed(ConnectionError):
    """The other end closed the connection."""


class ReaderGuard(Guard):
    """Lets in readers that know the secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = reader_key(secret)

    def key_for(self, hello: Hello) -> bytes:
        if hello.role is not Role.READER:
            raise Refused(Reason.WRONG_JOB)
        return self._key


class Channel:
    """One end, for one task at a time; raises OSError where the connection fails."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connected, non-blocking socket."""
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_S * 1000)
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()

    @classmethod
    async def dial(cls, address: Address, secret: bytes, limit: float) -> Channel:
        """Connect within `limit` seconds; raises OSError, or an Error if refused."""
        return await within(limit, cls._dial(address, secret))

    @classmethod
    async def _dial(cls, address: Address, secret: bytes) -> Channel:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
        connection = begin_connect(Address(*found[0][4][:2]))
        channel = cls(disown_in_child(connection, "close"))
        try:
            await _writable(connection)
            if reason := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise ConnectionRefusedError(reason, f"nobody listens at {address}")
            prepare(connection)
            hello = Hello(Role.READER, 0, 0, 0, ANY_PEER, 0, 0, new_nonce())
            await channel.shake(introduce(hello, reader_key(secret)))
        except BaseException:
            channel.close()
            raise
        return channel

    @classmethod
    async def accepted(cls, connection: socket.socket, secret: bytes) -> Channel:
        """Of a caller; raises an Error or OSError where it does not prove the secret in time."""
        channel = cls(connection)
        prepare(connection)
        await within(HANDSHAKE_S, channel.shake(receive(ReaderGuard(secret))))
        return channel

    async def shake(self, handshake: Handshake[Any]) -> None:
        """Carry out this end of a handshake."""
        reply, size = next(handshake)
        while True:
            await self._send(reply)
            read = await self._read(size) if size else b""
            try:
                reply, size = handshake.send(read)
            except StopIteration:
                return

    async def send(self, document: Document) -> None:
        """Send a document. Several tasks may: each goes as a whole."""
        async with self._sending:
            await self._send(framed(json.dumps(document, separators=(",", ":")).encode()))

    async def receive(self, limit: float, most: int = _DOCUMENT_MAX) -> Document:
        """The next document, of `most` bytes, within `limit` seconds.

        Raises ProtocolError for what is none.
        """
        return await within(limit, self._receive(most))

    async def _receive(self, most: int) -> Document:
        size, own = _HEAD.unpack(await self._read(_HEAD.size))
        if size > most:
            raise ProtocolError(f"a document of {size} bytes is too long")
        text = await self._read(size)
        if zlib.crc32(text) != own:
            raise ProtocolError("a document was damaged on its way")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"what came is no document: {error}") from None
        if not isinstance(document, dict):
            raise ProtocolError("what came is no document")
        return document

    async def send_run(self, data: memoryview) -> None:
        """Send a run of bytes; an empty one only tells that this end lives."""
        await self._send(_LENGTH.pack(len(data)))
        if len(data):
            await self._send(data)

    async def receive_run(self, target: memoryview, limit: float) -> int:
        """The next run, into the beginning of `target`; returns its size.

        Raises ProtocolError for one that is longer, TimeoutError if no byte comes for `limit` s.
        """
        head = await within(limit, self._read(_LENGTH.size))
        size = int(_LENGTH.unpack(head)[0])
        if size > len(target):
            raise ProtocolError(f"a run of {size} bytes is longer than what was asked for")
        await self._read_into(target[:size], limit)
        return size

    async def _send(self, data: bytes | memoryview) -> None:
        if len(data):
            await self._loop.sock_sendall(self._socket, data)

    async def _read(self, size: int) -> bytes:
        """So many bytes; memory follows what comes, not what is announced."""
        parts, missing = [], size
        while missing:
            part = await self._loop.sock_recv(self._socket, min(missing, 1 << 20))
            if not part:
                raise Closed("the other end closed the connection")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    async def _read_into(self, target: memoryview, limit: float) -> None:
        while len(target):
            count = await within(limit, self._loop.sock_recv_into(self._socket, target))
            if not count:
                raise Closed("the other end closed the connection")
            target = target[count:]

    def close(self) -> None:
        self._socket.close()


def framed(text: bytes) -> bytes:
    """A document as it goes over the connection."""
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


async def _writable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(connection, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(connection)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
