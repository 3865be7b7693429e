"""Accepts connections and runs all their handshakes at once, none trusted yet."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparsewire.errors import Error, ProtocolError
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.contact.handshake import Handshake, Reason, Refused
from sparsewire.meeting.contact.refusal_log import RefusalLog, kind_of, worded
from sparsewire.meeting.contact.sockets import local_end
from sparsewire.options import Address

_log = logging.getLogger(__name__)

PATIENCE_S = 5.0
STRANGERS_MAX = 128
_ACCEPT_PAUSE_S = 0.05
_ACCEPTED_AT_ONCE = 32

T = TypeVar("T")


@dataclass
class _Stranger(Generic[T]):
    """A connection whose handshake is under way; it has until `expires` to finish it."""

    handshake: Handshake[T]
    missing: int
    received: bytes
    expires: float
    address: str


class Listener(Generic[T]):
    """Listening sockets with the handshakes of their callers.

    A stranger costs one descriptor and what its handshake reads at once: fewer than 200 bytes until
    it has proved itself. One that is silent, slow or talks nonsense is dropped, and never holds up
    the others.
    """

    def __init__(
        self,
        greet: Callable[[], Handshake[T]],
        *doors: socket.socket,
        strangers_max: int | None = None,
        patience: float | None = None,
        on_refusal: Callable[[Refused, str], object] = lambda refusal, address: None,
    ) -> None:
        """Take over `doors`, which `sockets.bind` has made; `greet` begins a handshake.

        That may take `patience` seconds, for as many as `strangers_max` at once. `on_refusal` hears
        who was refused, and from which address; all are logged.
        """
        self._on_refusal = on_refusal
        self._refusals = RefusalLog()
        self._greet = greet
        self._strangers_max = strangers_max
        self._patience = patience
        self._strangers: OrderedDict[socket.socket, _Stranger[T]] = OrderedDict()
        self._doors = doors
        self._selector = selectors.DefaultSelector()
        for door in doors:
            self._selector.register(door, selectors.EVENT_READ)

    @property
    def address(self) -> Address:
        return local_end(self._doors[0])

    def fileno(self) -> int:
        """A descriptor to wait for. It is readable when `poll` has something to do."""
        return self._selector.fileno()

    @property
    def has_strangers(self) -> bool:
        """Whether some handshake is under way, which `poll` may have to cut off."""
        return bool(self._strangers)

    def poll(self, timeout: float) -> list[tuple[socket.socket, T]]:
        """Wait up to `timeout` seconds; return connections, and what their handshakes came to.

        They are non-blocking and belong to the caller.
        """
        welcome: list[tuple[socket.socket, T]] = []
        for key, _ in self._selector.select(self._wait_limit(timeout)):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            if ready in self._doors:
                self._accept_some(ready)
            # An accept may have pushed out a stranger whose event is still in this list.
            elif ready in self._strangers and (outcome := self._advance(ready)) is not None:
                welcome.append((ready, outcome))
        self._drop_expired()
        self._refusals.look()
        return welcome

    def disown(self) -> None:
        """In a forked child: the sockets close by themselves. The parent alone unregisters them."""
        self._selector.close()

    def close(self) -> None:
        for connection in list(self._strangers):
            self._drop(connection)
        self._selector.close()
        for door in self._doors:
            door.close()

    def _wait_limit(self, timeout: float) -> float:
        if not self._strangers:
            return timeout
        oldest = next(iter(self._strangers.values()))
        return max(0.0, min(timeout, oldest.expires - time.monotonic()))

    def _accept_some(self, door: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if not self._accept(door):
                return

    def _accept(self, door: socket.socket) -> bool:
        """Whether there may be more."""
        try:
            connection, address = door.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            # Most likely out of descriptors: make room, and do not spin.
            _log.warning("cannot accept a connection: %s", error)
            self._drop_oldest()
            time.sleep(_ACCEPT_PAUSE_S)
            return False
        if len(self._strangers) >= (self._strangers_max or STRANGERS_MAX):
            self._drop_oldest()
        disown_in_child(connection, "close").setblocking(False)
        handshake = self._greet()
        _, missing = next(handshake)
        try:
            self._selector.register(connection, selectors.EVENT_READ)
        except OSError as error:
            _log.warning("cannot watch a connection: %s", error)
            connection.close()
            return False
        expires = time.monotonic() + (self._patience or PATIENCE_S)
        self._strangers[connection] = _Stranger(
            handshake, missing, b"", expires, _named(connection, address)
        )
        return True

    def _advance(self, connection: socket.socket) -> T | None:
        """Read what is there and answer it; returns the outcome of a handshake that is complete."""
        stranger = self._strangers[connection]
        try:
            data = connection.recv(stranger.missing - len(stranger.received))
            if data:
                stranger.received += data
                return self._answer(connection, stranger)
            self._drop(connection)
        except BlockingIOError:
            pass
        except (Error, OSError) as error:
            self._note(error, stranger.address)
            self._drop(connection)
        return None

    def _note(self, error: Exception, address: str) -> None:
        if _is_usual(error):
            _log.debug("dropped a connection from %s: %s", address, error)
            return
        self._refusals.note(kind_of(error), worded(error, address))
        if isinstance(error, Refused):
            self._on_refusal(error, address)

    def _answer(self, connection: socket.socket, stranger: _Stranger[T]) -> T | None:
        try:
            while len(stranger.received) == stranger.missing:
                reply, stranger.missing = stranger.handshake.send(stranger.received)
                stranger.received = b""
                # All replies together are far smaller than any socket buffer.
                connection.sendall(reply)
        except StopIteration as finished:
            self._forget(connection)
            outcome: T = finished.value
            return outcome
        return None

    def _drop_expired(self) -> None:
        now = time.monotonic()
        while self._strangers and next(iter(self._strangers.values())).expires <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        if self._strangers:
            connection = next(iter(self._strangers))
            address = self._strangers[connection].address
            self._note(ProtocolError("no handshake"), address)
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._forget(connection).handshake.close()
        connection.close()

    def _forget(self, connection: socket.socket) -> _Stranger[T]:
        self._selector.unregister(connection)
        return self._strangers.pop(connection)


def _is_usual(error: Exception) -> bool:
    """Whether a caller hung up, as it does when its own listener was called meanwhile."""
    is_crossed = isinstance(error, Refused) and error.reason is Reason.CROSSED
    return is_crossed or isinstance(error, OSError)


def name_of(connection: socket.socket) -> str:
    """The address of the other end, for a log."""
    with contextlib.suppress(OSError):
        return _named(connection, connection.getpeername())
    return "an unknown address"


def _named(connection: socket.socket, address: tuple[str, int]) -> str:
    """An address in the words of a log; a connection that is reset has none any more."""
    return "this host" if connection.family == socket.AF_UNIX else str(Address(*address[:2]))
