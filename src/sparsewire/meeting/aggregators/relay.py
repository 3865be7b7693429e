"""Hands connections on: each of a rack's workers gets one to the parent, and bytes go both ways."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass

from sparsewire.errors import Error
from sparsewire.meeting.contact.handshake import Handshake, Hello, introduce, new_nonce
from sparsewire.meeting.contact.keys import number_above
from sparsewire.meeting.contact.listener import name_of
from sparsewire.meeting.contact.refusal_log import RefusalLog, kind_of
from sparsewire.meeting.contact.sockets import begin_connect, prepare, refuse_own_end
from sparsewire.meeting.mesh.caller import Call, Caller, Seat
from sparsewire.options import Address

_log = logging.getLogger(__name__)

_CHUNK = 256 << 10
"""Bytes, the most that waits for a slow reader, each way."""
_PATIENCE_S = 10.0
_LOOK_S = 1.0
_PROBE_LIMIT_S = 1.0
_PROBE = "probe"
"""Marks the connection that only tries whether the parent listens."""

JobSeat = tuple[int, int, int]
"""Job, rank and lane of one connection."""


@dataclass(eq=False)
class _End:
    """One end of a connection that was handed on, with the bytes that wait for it."""

    socket: socket.socket
    seat: JobSeat
    other: _End | None = None
    unsent: bytes = b""
    has_ended: bool = False
    """Whether it has said its last."""
    is_told: bool = False
    """Whether it knows that the other has."""


@dataclass(frozen=True)
class _Arrival:
    """A worker that has proved itself here, and is to do so at the parent."""

    connection: socket.socket
    hello: Hello
    key: bytes

    @property
    def seat(self) -> JobSeat:
        return self.hello.job, self.hello.rank, self.hello.lane


class Relay:
    """Connections between workers and the parent, in a thread of its own."""

    def __init__(self, parent: Address, *, may_register: bool) -> None:
        """`parent` is numeric. With `may_register` it is given the keys of jobs new to it."""
        self._parent = parent
        self._may_register = may_register
        self._numbers = itertools.count()
        self._calls: dict[Seat, _Arrival] = {}
        self._arrivals: deque[_Arrival] = deque()
        self._served: set[JobSeat] = set()
        self._mutex = threading.Lock()
        self._caller = Caller(self._introduce)
        self._refusals = RefusalLog()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._caller, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._ends: set[_End] = set()
        self._stops = False
        self._reaches_parent = False
        self._next_probe = 0.0
        self._probed: socket.socket | None = None
        self._probe_expires = 0.0
        self._has_looked = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def reaches_parent(self) -> bool:
        """Whether the parent listened at the last try, about a second ago."""
        return self._reaches_parent

    def add(self, connection: socket.socket, hello: Hello, key: bytes) -> None:
        """Take over a worker's non-blocking connection; `key` is the job's."""
        arrival = _Arrival(connection, hello, key)
        with self._mutex:
            self._served.add(arrival.seat)
        self._arrivals.append(arrival)
        os.eventfd_write(self._bell, 1)

    def serves(self, seat: JobSeat) -> bool:
        """Whether this worker's connection is still here."""
        with self._mutex:
            return seat in self._served

    def close(self) -> None:
        self._stops = True
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)
        self._thread.join()

    # --- The thread ---

    def _run(self) -> None:
        while not self._stops:
            try:
                self._round()
            except Exception:
                _log.exception("handing connections on failed for a moment")
                time.sleep(_LOOK_S)
        self._hang_up()

    def _round(self) -> None:
        limit = self._caller.wait_limit
        for key, events in self._selector.select(_LOOK_S if limit is None else min(limit, _LOOK_S)):
            end = key.data
            if isinstance(end, _End) and end in self._ends:
                self._serve(end, events)
            elif end is _PROBE:
                self._end_probe(_has_connected(self._probed))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while self._arrivals:
            self._call(self._arrivals.popleft())
        for call, outcome in self._caller.poll():
            self._finish(call, outcome)
        self._refusals.look()
        self._probe()

    def _hang_up(self) -> None:
        for arrival in [*self._arrivals, *self._calls.values()]:
            arrival.connection.close()
        for end in list(self._ends):
            end.socket.close()
        if self._probed:
            self._probed.close()
        self._caller.close()
        self._selector.close()
        os.close(self._bell)

    def _probe(self) -> None:
        """Try whether the parent listens, as long as no connection shows it; never waits for it."""
        now = time.monotonic()
        if self._probed:
            if now >= self._probe_expires:
                self._end_probe(reached=False)
        elif now >= self._next_probe and not self._ends:
            self._begin_probe()

    def _begin_probe(self) -> None:
        try:
            self._probed = begin_connect(self._parent)
        except OSError:
            return self._note_probe(reached=False)
        self._probe_expires = time.monotonic() + _PROBE_LIMIT_S
        self._selector.register(self._probed, selectors.EVENT_WRITE, _PROBE)

    def _end_probe(self, reached: bool) -> None:
        assert self._probed
        self._selector.unregister(self._probed)
        self._probed.close()
        self._probed = None
        self._note_probe(reached)

    def _note_probe(self, reached: bool) -> None:
        if not reached and (self._reaches_parent or not self._has_looked):
            _log.warning("waiting for the parent at %s", self._parent)
        self._has_looked = True
        self._reaches_parent = reached
        self._next_probe = time.monotonic() + _LOOK_S

    # --- Calls ---

    def _call(self, arrival: _Arrival) -> None:
        seat = next(self._numbers), 0
        self._calls[seat] = arrival
        self._caller.call(seat, [self._parent], _PATIENCE_S)

    def _introduce(self, seat: Seat) -> Handshake[None]:
        arrival = self._calls[seat]
        above = number_above(arrival.hello.peer)
        hello = arrival.hello._replace(peer=above, nonce=new_nonce())
        return introduce(hello, arrival.key, may_register=self._may_register)

    def _finish(self, call: Call, outcome: socket.socket | Exception) -> None:
        arrival = self._calls.pop(call.seat)
        if isinstance(outcome, Exception):
            who = f"{arrival.hello.caller} at {name_of(arrival.connection)}"
            self._refusals.note(kind_of(outcome), f"{who} is not let in by the parent: {outcome}")
            if not isinstance(outcome, Error):
                self._next_probe = 0.0
                self._reaches_parent = False
            arrival.connection.close()
            self._forget(arrival.seat)
            return
        with contextlib.suppress(OSError):
            prepare(outcome)
        self._reaches_parent = True
        near, far = _End(arrival.connection, arrival.seat), _End(outcome, arrival.seat)
        near.other, far.other = far, near
        for end in (near, far):
            end.socket.setblocking(False)
            self._ends.add(end)
            self._selector.register(end.socket, selectors.EVENT_READ, end)

    def _forget(self, seat: JobSeat) -> None:
        with self._mutex:
            self._served.discard(seat)

    # --- Bytes ---

    def _serve(self, end: _End, events: int) -> None:
        assert end.other
        try:
            if events & selectors.EVENT_WRITE:
                self._send(end)
            if events & selectors.EVENT_READ:
                self._receive(end)
            for each in (end, end.other):
                self._say_end(each)
            if end.is_told and end.other.is_told:
                self._drop(end)
                return
            for each in (end, end.other):
                self._watch(each)
        except OSError as error:
            _log.debug("job %016x: rank %d: %s", *end.seat[:2], error)
            self._drop(end)

    def _receive(self, end: _End) -> None:
        """Read once, and only what the other end takes at once or has room for."""
        assert end.other
        with contextlib.suppress(BlockingIOError):
            data = end.socket.recv(_CHUNK)
            end.has_ended = not data
            end.other.unsent = data
            self._send(end.other)

    def _send(self, end: _End) -> None:
        with contextlib.suppress(BlockingIOError):
            sent = end.socket.send(end.unsent) if end.unsent else 0
            end.unsent = end.unsent[sent:]

    def _say_end(self, end: _End) -> None:
        assert end.other
        if end.other.has_ended and not end.unsent and not end.is_told:
            end.is_told = True
            end.socket.shutdown(socket.SHUT_WR)

    def _watch(self, end: _End) -> None:
        """Watch an end for reading unless its bytes still wait, for writing if bytes wait there."""
        assert end.other
        reads = not end.has_ended and not end.other.unsent
        events = reads * selectors.EVENT_READ | bool(end.unsent) * selectors.EVENT_WRITE
        is_watched = end.socket in self._selector.get_map()
        if not events and is_watched:
            self._selector.unregister(end.socket)
        elif events and not is_watched:
            self._selector.register(end.socket, events, end)
        elif events and self._selector.get_key(end.socket).events != events:
            self._selector.modify(end.socket, events, end)

    def _drop(self, end: _End) -> None:
        assert end.other
        for each in (end, end.other):
            self._ends.discard(each)
            if each.socket in self._selector.get_map():
                self._selector.unregister(each.socket)
            each.socket.close()
        self._forget(end.seat)
        self._next_probe = 0.0


def _has_connected(connection: socket.socket | None) -> bool:
    """Whether a connection that has become writable is up, and not connected to itself."""
    if connection is None or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return False
    try:
        refuse_own_end(connection)
    except OSError:
        return False
    return True
