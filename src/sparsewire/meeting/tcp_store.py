"""A key-value store over TCP that rank 0 hosts while the ranks of a job find each other.

A key is written once and never deleted. Requests are bounded, and values are opaque bytes: whoever
reads one checks it. Whoever connects must prove the job's secret first. Without a secret that keeps
out only those who speak another language; what each may ask for is bounded all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from sparsewire.errors import AuthenticationError, Error, ProtocolError, Timeout
from sparsewire.meeting.handshake import (
    MAGIC,
    Guard,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    new_nonce,
    store_key,
)
from sparsewire.meeting.listener import Listener
from sparsewire.meeting.mesh import attempt
from sparsewire.meeting.sockets import CutShort, close_in_child, receive_exactly
from sparsewire.options import START_TIMEOUT_MAX_S, Address

_log = logging.getLogger(__name__)

KEY_MAX = 512
VALUE_MAX = 64 * 1024
CLIENT_KEYS_MAX = 4096
CLIENT_BYTES_MAX = 4 * 1024 * 1024
TOTAL_MAX = 256 * 1024 * 1024
CLIENTS_MAX = 4096

_HEADER = struct.Struct("!4sBxHI")
_MAGIC = b"spws"
_LONG_POLL_S = 1.0
_REQUEST_LIMIT_S = 10.0
_REPLY_LIMIT_S = _LONG_POLL_S + 10.0
_RETRY_S = 0.05
_HOUSEKEEPING_S = 0.5


class _Verb(IntEnum):
    SET = 1
    GET = 2
    CHECK = 3


class _Status(IntEnum):
    DONE = 0
    ABSENT = 1
    TAKEN = 2
    FULL = 3


class TcpStore:
    """One rank's view of the store; with `is_server` it also hosts it on `host`:`port`."""

    def __init__(
        self,
        host: str,
        port: int,
        is_server: bool,
        timeout: float = 300.0,
        *,
        secret: bytes = b"",
    ) -> None:
        """`timeout` in seconds, for each `get` and for the server to appear. Raises Error.

        All ranks pass the same `secret`, or none.
        """
        self._key = store_key(secret)
        self._is_server = is_server
        self._server = Server(host, port, self._key) if is_server else None
        self._address = self._server.address if self._server else Address(host, port)
        self._timeout = timeout
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()

    @property
    def address(self) -> Address:
        """Where the server is; a server on port 0 has chosen its port."""
        return self._address

    def set(self, key: str, value: bytes) -> None:
        """Raises Error where the key is there already: two jobs use the same port."""
        if len(value) > VALUE_MAX:
            raise ValueError(f"a value may have {VALUE_MAX} bytes, not {len(value)}")
        status, _ = self._ask(_Verb.SET, key, value, time.monotonic() + self._timeout)
        if status is _Status.TAKEN:
            raise Error(
                f"{key!r} is in the store at {self._address} already: "
                "give each job a MASTER_PORT of its own, and start each rank once"
            )
        if status is not _Status.DONE:
            raise Error(f"the store at {self._address} is full")

    def get(self, key: str) -> bytes:
        """Raises Timeout where the key does not appear."""
        deadline = time.monotonic() + self._timeout
        while True:
            status, value = self._ask(_Verb.GET, key, b"", deadline)
            if status is _Status.DONE:
                return value
            if time.monotonic() >= deadline:
                raise Timeout(f"nobody wrote {key!r} to {self._address} in {self._timeout:g} s")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are there."""
        deadline = time.monotonic() + self._timeout
        return all(self._ask(_Verb.CHECK, key, b"", deadline)[0] is _Status.DONE for key in keys)

    def close(self) -> None:
        """Forget everything. The next call opens the store again, with nothing in it."""
        with self._lock:
            self._disconnect()
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def leave(self) -> None:
        """Close once rank 0 does, which it may as soon as all ranks have read all they need."""
        if not self._is_server:
            with self._lock:
                self._await_hangup()
        self.close()

    def _await_hangup(self) -> None:
        """Whoever leaves first could meet others in the old store when it comes again."""
        if self._connection is not None:
            self._connection.settimeout(min(self._timeout, START_TIMEOUT_MAX_S))
            with contextlib.suppress(OSError):
                self._connection.recv(1)

    def _ask(self, verb: _Verb, key: str, value: bytes, deadline: float) -> tuple[_Status, bytes]:
        name = key.encode()
        if len(name) > KEY_MAX:
            raise ValueError(f"a key may have {KEY_MAX} bytes, not {len(name)}")
        request = _HEADER.pack(_MAGIC, verb, len(name), len(value)) + name + value
        with self._lock:
            connection = self._connect(deadline)
            with self._disconnected_on_error():
                connection.sendall(request)
                return self._read_reply(connection)

    @contextmanager
    def _disconnected_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._disconnect()
            raise Error(f"lost the store at {self._address}: {error}. Did rank 0 end?") from error
        except BaseException:
            # A reply that nobody read would answer the next question.
            self._disconnect()
            raise

    def _read_reply(self, connection: socket.socket) -> tuple[_Status, bytes]:
        magic, status, _, size = _HEADER.unpack(receive_exactly(connection, _HEADER.size))
        if magic != _MAGIC or status not in list(_Status) or size > VALUE_MAX:
            raise self._no_store()
        return _Status(status), receive_exactly(connection, size)

    def _no_store(self) -> ProtocolError:
        return ProtocolError(
            f"what listens at {self._address} is not a sparsewire store: "
            "choose another MASTER_PORT, or pass store="
        )

    def _connect(self, deadline: float) -> socket.socket:
        if self._is_server and self._server is None:
            self._server = Server(*self._address, self._key)
        while self._connection is None:
            try:
                self._connection = self._introduced()
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise Timeout(
                        f"cannot reach the store of rank 0 at {self._address}: {error}. "
                        "Are MASTER_ADDR and MASTER_PORT the same on all ranks?"
                    ) from error
                time.sleep(_RETRY_S)
        return self._connection

    def _introduced(self) -> socket.socket:
        """A new connection to the server; raises OSError where trying again may help."""
        hello = Hello(Role.STORE_USER, 0, 0, 0, Hello.ANY_PEER, 0, 0, new_nonce())
        try:
            return attempt(self._address, introduce(hello, self._key), _REPLY_LIMIT_S)
        except ProtocolError as error:
            raise self._no_store() from error
        except CutShort as error:
            if error.data and not error.data.startswith(MAGIC):
                raise self._no_store() from error
            raise
        except AuthenticationError as error:
            raise AuthenticationError(f"the store at {self._address}: {error}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class StoreGuard(Guard):
    """Lets in whoever proves the key of the store, as often as they like."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def key_for(self, hello: Hello) -> bytes:
        if hello.role is not Role.STORE_USER:
            raise Refused(Reason.WRONG_JOB)
        return self._key

    def enter(self, hello: Hello, key: bytes) -> None:
        pass

    def leave(self, hello: Hello) -> None:
        pass


@dataclass
class _Allowance:
    """What one client may still write."""

    keys: int = CLIENT_KEYS_MAX
    size: int = CLIENT_BYTES_MAX

    def take(self, size: int) -> bool:
        self.keys -= 1
        self.size -= size
        return self.keys >= 0 and self.size >= 0


class Server:
    """The store itself, in a thread of its own."""

    def __init__(self, host: str, port: int, key: bytes) -> None:
        self._listener = Listener(host, port, StoreGuard(key))
        self.address = self._listener.address
        self._values: dict[bytes, bytes] = {}
        self._total = 0
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self._clients: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sparsewire-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._loop.add_reader(self._listener, self._welcome)
        while not self._closing.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _HOUSEKEEPING_S)
            self._welcome()  # or rather send away those whose time is up
        self._loop.remove_reader(self._listener)
        self._listener.close()
        # Again and again: before Python 3.12 a wait_for that is about to succeed may swallow it.
        while self._clients:
            for client in self._clients:
                client.cancel()
            await asyncio.wait(set(self._clients), timeout=0.1)

    def _welcome(self) -> None:
        for connection, _ in self._listener.poll(0):
            if len(self._clients) >= CLIENTS_MAX:
                connection.close()
                continue
            client = self._loop.create_task(self._attend(close_in_child(connection)))
            self._clients.add(client)
            client.add_done_callback(self._clients.discard)

    async def _attend(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        allowance = _Allowance()
        try:
            # A client may be silent for long, but only after it has shown that it is one.
            await self._exchange(reader, writer, allowance, _REQUEST_LIMIT_S)
            while True:
                await self._exchange(reader, writer, allowance, None)
        except (OSError, EOFError, ProtocolError, asyncio.TimeoutError) as error:
            _log.debug("a client of the store left: %s", error)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowance: _Allowance,
        patience: float | None,
    ) -> None:
        """Answer one request."""
        header = await asyncio.wait_for(reader.readexactly(_HEADER.size), patience)
        magic, verb, key_size, value_size = _HEADER.unpack(header)
        if magic != _MAGIC or key_size > KEY_MAX or value_size > VALUE_MAX:
            raise ProtocolError("not a request to a sparsewire store")
        body = await asyncio.wait_for(reader.readexactly(key_size + value_size), _REQUEST_LIMIT_S)
        status, value = await self._answer(verb, body[:key_size], body[key_size:], allowance)
        writer.write(_HEADER.pack(_MAGIC, status, 0, len(value)) + value)
        await asyncio.wait_for(writer.drain(), _REQUEST_LIMIT_S)

    async def _answer(
        self, verb: int, key: bytes, value: bytes, allowance: _Allowance
    ) -> tuple[_Status, bytes]:
        if verb == _Verb.SET:
            return self._set(key, value, allowance), b""
        if verb == _Verb.GET:
            await self._appears(key)
            found = self._values.get(key)
            return (_Status.ABSENT, b"") if found is None else (_Status.DONE, found)
        if verb == _Verb.CHECK:
            return _Status.DONE if key in self._values else _Status.ABSENT, b""
        raise ProtocolError(f"unknown request {verb}")

    def _set(self, key: bytes, value: bytes, allowance: _Allowance) -> _Status:
        if key in self._values:
            return _Status.TAKEN
        size = len(key) + len(value)
        if not allowance.take(size) or self._total + size > TOTAL_MAX:
            return _Status.FULL
        self._total += size
        self._values[key] = value
        for waiting in self._waiting.pop(key, ()):
            if not waiting.done():
                waiting.set_result(None)
        return _Status.DONE

    async def _appears(self, key: bytes) -> None:
        """Wait for `key`, but not for long: clients ask again, and those that left do not."""
        if key in self._values:
            return
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(key, set()).add(waiting)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, _LONG_POLL_S)
        if key in self._waiting:
            self._waiting[key].discard(waiting)
            if not self._waiting[key]:
                del self._waiting[key]
