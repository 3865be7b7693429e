"""A connection between a reader and who serves it: documents of JSON, and runs of bytes.

Each has its length in 32 big-endian bits before it, and a document the CRC-32 of its bytes as well.
Both ends prove the secret first (meeting/contact/handshake.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import zlib
from collections.abc import Callable
from typing import Any

from sparsewire.errors import ProtocolError
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
from sparsewire.weights.sync.window import SendWindow
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
# A relay wakes and sends for each part. Each hop of a tree waits for one to be there.
_PART_BYTES = 32 << 10


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
        self._window: SendWindow | None = None

    @classmethod
    async def dial(cls, address: Address, secret: bytes, limit: float) -> Channel:
        """Connect within `limit` seconds, to the first of the host's addresses that answers.

        Raises OSError, or an Error if refused.
        """
        return await within(limit, cls._dial(address, secret, limit))

    @classmethod
    async def _dial(cls, address: Address, secret: bytes, limit: float) -> Channel:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
        ends = list(dict.fromkeys(Address(*each[4][:2]) for each in found))
        for number, end in enumerate(ends, start=1):
            try:
                return await within(limit / len(ends), cls._dial_one(end, secret, limit))
            except OSError:
                if number == len(ends):
                    raise
        raise ConnectionRefusedError(f"{address.host} has no address")

    @classmethod
    async def _dial_one(cls, address: Address, secret: bytes, limit: float) -> Channel:
        loop = asyncio.get_running_loop()
        channel = cls(connection := begin_connect(address))
        try:
            await _ready(loop.add_writer, loop.remove_writer, connection, limit)
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
        self._window = self._window or SendWindow(self._socket)
        head = _LENGTH.pack(len(data))
        sent = self._sent_now(head, data)
        await self._send(head[sent:])
        await self._send(data[max(sent - len(head), 0) :])
        self._window.adapt()

    async def receive_run(
        self, target: memoryview, limit: float, came: Callable[[int], None]
    ) -> int:
        """The next run, into the beginning of `target`; returns its size.

        `came` hears how many bytes are there, as they come. Raises ProtocolError for a run that is
        longer, TimeoutError if no byte comes for `limit` s.
        """
        head = bytearray(_LENGTH.size)
        await self._read_into(memoryview(head), limit)
        size = int(_LENGTH.unpack(head)[0])
        if size > len(target):
            raise ProtocolError(f"a run of {size} bytes is longer than what was asked for")
        await self._read_into(target[:size], limit, came)
        return size

    def _sent_now(self, *parts: bytes | memoryview) -> int:
        """Send what the socket takes at once, in one packet if it is little; returns how much."""
        try:
            return self._socket.sendmsg(parts)
        except BlockingIOError:
            return 0

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

    async def _read_into(
        self, target: memoryview, limit: float, came: Callable[[int], None] | None = None
    ) -> None:
        there = 0
        while there < len(target):
            count = await self._part(target[there:], limit)
            if not count:
                raise Closed("the other end closed the connection")
            there += count
            if came:
                came(there)

    async def _part(self, target: memoryview, limit: float) -> int:
        """The next bytes of so many: some thousand of them, or what comes in `limit` seconds."""
        try:
            return self._socket.recv_into(target)
        except BlockingIOError:
            self._wake_at(min(len(target), _PART_BYTES))
        try:
            await _ready(self._loop.add_reader, self._loop.remove_reader, self._socket, limit)
            return self._socket.recv_into(target)
        except TimeoutError:
            with contextlib.suppress(BlockingIOError):
                return self._socket.recv_into(target)
            raise
        finally:
            self._wake_at(1)

    def _wake_at(self, count: int) -> None:
        """Have the system call the socket readable from so many bytes on."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def close(self) -> None:
        self._socket.close()


def framed(text: bytes) -> bytes:
    """A document as it goes over the connection."""
    return _HEAD.pack(len(text), zlib.crc32(text)) + text


async def _ready(
    watch: Callable[..., object],
    leave: Callable[[socket.socket], object],
    connection: socket.socket,
    limit: float,
) -> None:
    """Wait for what a loop's `watch` tells of; raises TimeoutError after `limit` seconds.

    Parts of a message come by the thousand, and `within` makes a task for each.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(limit, _fail, ready)
    watch(connection, _settle, ready)
    try:
        await ready
    finally:
        timer.cancel()
        leave(connection)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _fail(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_exception(TimeoutError("nothing came"))
