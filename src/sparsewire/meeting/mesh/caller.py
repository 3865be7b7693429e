"""Calls many peers at once: each is dialled, and proves itself, without holding up the others."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sparsewire.errors import Error
from sparsewire.meeting.contact.handshake import Handshake, Reason, Refused
from sparsewire.meeting.contact.sockets import LocalAddress, Target, begin_connect, refuse_own_end

Seat = tuple[int, int]
"""Rank and lane of the other end."""

_RETRY_FIRST_S = 0.01
_RETRY_MAX_S = 0.5
_AT_ONCE = 64
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Stage(Enum):
    """The stage of a call. A failure that may pass leads from the last two back to a pause."""

    QUEUED = auto()
    PAUSING = auto()
    """The call waits until `again_at`."""
    CONNECTING = auto()
    GREETING = auto()


@dataclass
class Call:
    """A call of one peer, by its `targets` in order, until it answers or nobody listens there."""

    seat: Seat
    targets: Sequence[Target]
    limit: float
    source: str = ""
    expires: float = math.inf
    target: int = 0
    stage: Stage = Stage.QUEUED
    connection: socket.socket | None = None
    handshake: Handshake[None] | None = None
    missing: int = 0
    received: bytes = b""
    pause: float = _RETRY_FIRST_S
    again_at: float = 0.0

    @property
    def at(self) -> Target:
        return self.targets[self.target]


Outcome = tuple[Call, "socket.socket | Exception"]


class Caller:
    """Calls that are under way. A call ends once: with a connection, or with the reason why not."""

    def __init__(self, greet: Callable[[Seat], Handshake[None]]) -> None:
        """`greet` begins a handshake with the peer at a seat."""
        self._greet = greet
        self._calls: dict[Seat, Call] = {}
        self._queue: dict[Seat, Call] = {}  # Not begun yet.
        self._begun: list[Seat] = []
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        """A descriptor to wait for. It is readable when some call can go on."""
        return self._selector.fileno()

    @property
    def wait_limit(self) -> float | None:
        """Seconds until something is to be done without an answer; None where nothing is."""
        if self._queue and len(self._calls) < _AT_ONCE:
            return 0.0
        if not self._calls:
            return None
        now = time.monotonic()
        due = min(
            min(call.again_at, call.expires) if call.stage is Stage.PAUSING else call.expires
            for call in self._calls.values()
        )
        return max(0.0, due - now)

    def is_calling(self, seat: Seat) -> bool:
        return seat in self._calls or seat in self._queue

    def call(self, seat: Seat, targets: Sequence[Target], limit: float, source: str = "") -> None:
        """Queue a call of at most `limit` seconds, unless the seat is called already.

        `source` is the local address to call from, or "".
        """
        if not self.is_calling(seat):
            self._queue[seat] = Call(seat, targets, limit, source)

    def begun(self) -> list[Seat]:
        """The places that are called since the last time that this was asked."""
        begun, self._begun = self._begun, []
        return begun

    def cancel(self, seat: Seat) -> None:
        self._queue.pop(seat, None)
        if call := self._calls.pop(seat, None):
            self._hang_up(call)

    def poll(self) -> list[Outcome]:
        """Get on with all calls, and return those that have ended; without waiting."""
        ended: list[Outcome] = []
        for key, _ in self._selector.select(0):
            call: Call = key.data
            if self._calls.get(call.seat) is call:
                self._step(call, self._advance, ended)
        self._begin_next()
        now = time.monotonic()
        for call in list(self._calls.values()):
            if now >= call.expires:
                self._end(call, TimeoutError("it does not answer"), ended)
            elif call.stage is Stage.PAUSING and now >= call.again_at:
                self._step(call, self._begin, ended)
        return ended

    def _begin_next(self) -> None:
        while self._queue and len(self._calls) < _AT_ONCE:
            seat = next(iter(self._queue))
            call = self._calls[seat] = self._queue.pop(seat)
            call.stage = Stage.PAUSING
            call.expires = time.monotonic() + call.limit
            self._begun.append(seat)

    def close(self) -> None:
        for seat in list(self._calls):
            self.cancel(seat)
        self._selector.close()

    def disown(self) -> None:
        """In a forked child: close the selector, and leave the registered sockets to the parent."""
        self._selector.close()

    def _step(self, call: Call, act: Callable[[Call], bool], ended: list[Outcome]) -> None:
        try:
            if act(call):
                connection = call.connection
                assert connection
                call.connection = None
                self._selector.unregister(connection)
                self._end(call, connection, ended)
        except Refused as error:
            # Both have called: the other end's call comes through.
            if error.reason is Reason.CROSSED:
                self._again(call)
            else:
                self._end(call, error, ended)
        except Error as error:
            self._end(call, error, ended)
        except OSError as error:
            self._on_system_error(call, error, ended)

    def _on_system_error(self, call: Call, error: OSError, ended: list[Outcome]) -> None:
        is_busy = isinstance(error, BlockingIOError)
        is_local = isinstance(call.at, LocalAddress)
        if is_local and not is_busy and call.target + 1 < len(call.targets):
            self._hang_up(call)
            call.target += 1
            self._step(call, self._begin, ended)
        elif isinstance(error, ConnectionRefusedError) or error.errno in _NO_ROOM:
            self._end(call, error, ended)
        else:
            self._again(call)

    def _begin(self, call: Call) -> bool:
        call.handshake = self._greet(call.seat)
        call.connection = begin_connect(call.at, call.source)
        call.stage = Stage.CONNECTING
        self._selector.register(call.connection, selectors.EVENT_WRITE, call)
        return False

    def _advance(self, call: Call) -> bool:
        """Whether the handshake is complete."""
        assert call.connection
        assert call.handshake
        if call.stage is Stage.CONNECTING:
            self._on_connected(call)
            return False
        try:
            data = call.connection.recv(call.missing - len(call.received))
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError("the other end closed the connection")
        call.received += data
        try:
            while len(call.received) == call.missing:
                reply, call.missing = call.handshake.send(call.received)
                call.received = b""
                # All replies together are far smaller than any socket buffer.
                call.connection.sendall(reply)
        except StopIteration:
            return True
        return False

    def _on_connected(self, call: Call) -> None:
        assert call.connection
        assert call.handshake
        reason = call.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reason:
            raise OSError(reason, os.strerror(reason))
        refuse_own_end(call.connection)
        call.stage = Stage.GREETING
        reply, call.missing = next(call.handshake)
        call.received = b""
        call.connection.sendall(reply)
        self._selector.modify(call.connection, selectors.EVENT_READ, call)

    def _again(self, call: Call) -> None:
        self._hang_up(call)
        call.stage = Stage.PAUSING
        call.again_at = time.monotonic() + call.pause
        call.pause = min(2 * call.pause, _RETRY_MAX_S)

    def _end(self, call: Call, outcome: socket.socket | Exception, ended: list[Outcome]) -> None:
        self._hang_up(call)
        self._calls.pop(call.seat, None)
        ended.append((call, outcome))

    def _hang_up(self, call: Call) -> None:
        if call.connection is None:
            return
        with contextlib.suppress(KeyError):
            self._selector.unregister(call.connection)
        call.connection.close()
        call.connection = None
