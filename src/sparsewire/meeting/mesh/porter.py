"""The thread that connects a mesh: it lets peers in, and calls those that the engine asks for.

Everything about one mesh's connections is decided here, in one thread, so that two ends that call
each other at once end up with one connection: the lower rank decides. While it calls itself it
refuses the higher one, which waits for that call; a lower one is let in whatever happens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

from sparsewire._core import Mesh as Core
from sparsewire.lifetime import disown_in_child
from sparsewire.meeting.contact.dial import Membership
from sparsewire.meeting.contact.handshake import (
    Guard,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    receive,
)
from sparsewire.meeting.contact.listener import PATIENCE_S, STRANGERS_MAX, Listener
from sparsewire.meeting.contact.sockets import prepare
from sparsewire.meeting.mesh.caller import Call, Caller, Seat
from sparsewire.meeting.network.routes import Routes

_log = logging.getLogger(__name__)

_LOOK_S = 0.5
# The engine gives up first, after the peer timeout, where a peer does not answer.
_PATIENCE = 1.5


class MeshGuard(Guard):
    """Lets in each other rank of the job once per lane, unless this end calls it and decides."""

    def __init__(self, member: Membership, is_calling: Callable[[Seat], bool]) -> None:
        self._member = member
        self._is_calling = is_calling
        self.connected: set[Seat] = set()

    def key_for(self, hello: Hello) -> bytes:
        member = self._member
        if (hello.role, hello.job, hello.epoch) != (Role.PEER, member.job, member.epoch):
            raise Refused(Reason.WRONG_JOB)
        self._refuse_crossed(hello)
        known = hello.rank != member.rank and hello.rank < member.world_size
        if not known or hello.lane >= member.lanes:
            raise Refused(Reason.WRONG_RANK)
        if (hello.peer, hello.world_size) != (member.rank, member.world_size):
            raise Refused(Reason.WRONG_RANK)
        return member.key

    def enter(self, hello: Hello, key: bytes) -> None:
        seat = (hello.rank, hello.lane)
        self._refuse_crossed(hello)
        if seat in self.connected:
            raise Refused(Reason.DUPLICATE)
        self.connected.add(seat)

    def _refuse_crossed(self, hello: Hello) -> None:
        seat = (hello.rank, hello.lane)
        decides = self._member.rank < hello.rank
        if decides and (seat in self.connected or self._is_calling(seat)):
            raise Refused(Reason.CROSSED)

    def leave(self, hello: Hello) -> None:
        self.connected.discard((hello.rank, hello.lane))


class Porter:
    """Connects the mesh of one process, from its start until `close`."""

    def __init__(
        self,
        core: Core,
        member: Membership,
        doors: Sequence[socket.socket],
        routes: Routes,
        patience: float,
    ) -> None:
        """Take over `doors`."""
        self._core = core
        self._member = member
        self._routes = routes
        self._patience = patience * _PATIENCE
        self._caller = Caller(self._introduce)
        self.guard = MeshGuard(member, self._caller.is_calling)
        self._listener = Listener(
            partial(receive, self.guard),
            *doors,
            strangers_max=max(STRANGERS_MAX, 2 * member.world_size * member.lanes),
            # If many ranks start at once on few processors, each waits a while for its turn.
            patience=max(PATIENCE_S, patience),
        )
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ends = False
        self._selector = selectors.DefaultSelector()
        for watched in (self._listener, self._caller, core.calls_fd(), self._bell):
            self._selector.register(watched, selectors.EVENT_READ)
        # A daemon, so that a program that forgets to close its communicator still ends.
        self._thread = threading.Thread(target=self._run, name="sparsewire-porter", daemon=True)
        disown_in_child(self)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening and calling. Idempotent."""
        self._ends = True
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.eventfd_write(self._bell, 1)
            self._thread.join()
        elif self._bell >= 0:
            self._hang_up()

    def disown(self) -> None:
        """In a forked child: close the selectors. The sockets close by themselves."""
        self._listener.disown()
        self._caller.disown()
        self._selector.close()
        if self._bell >= 0:
            os.close(self._bell)

    def _run(self) -> None:
        while not self._ends:
            try:
                self.serve(self._limit())
            except Exception:
                _log.exception("connecting with other ranks failed for a moment")
                threading.Event().wait(_LOOK_S)
        self._hang_up()

    def serve(self, limit: float | None) -> None:
        """One round: wait up to `limit` seconds, and get on with what is there."""
        self._selector.select(limit)
        for peer in sorted(self._core.take_calls(), key=self._turn):
            self._call(peer)
        for connection, hello in self._listener.poll(0):
            seat = (hello.rank, hello.lane)
            self._caller.cancel(seat)
            self._adopt(seat, connection)
        for call, outcome in self._caller.poll():
            self._finish(call, outcome)
        for rank, lane in self._caller.begun():
            if lane == 0:
                self._core.note_call(rank)

    def _hang_up(self) -> None:
        self._listener.close()
        self._caller.close()
        self._selector.close()
        os.close(self._bell)
        self._bell = -1

    def _limit(self) -> float | None:
        limits = (self._caller.wait_limit, _LOOK_S if self._listener.has_strangers else None)
        return min((limit for limit in limits if limit is not None), default=None)

    def _turn(self, peer: int) -> int:
        """A peer's turn to be called: higher ranks first, because lower ranks call this one.

        Each rank begins with a different peer.
        """
        ahead = peer - self._member.rank
        return ahead if ahead > 0 else self._member.world_size - ahead

    def _introduce(self, seat: Seat) -> Handshake[None]:
        rank, lane = seat
        return introduce(self._member.hello(Role.PEER, rank, lane), self._member.key)

    def _call(self, peer: int) -> None:
        for lane in range(self._member.lanes):
            if (peer, lane) not in self.guard.connected:
                targets, source = self._routes.targets(peer, lane), self._routes.source(lane)
                self._caller.call((peer, lane), targets, self._patience, source)

    def _finish(self, call: Call, outcome: socket.socket | Exception) -> None:
        rank, _ = call.seat
        if isinstance(outcome, Exception):
            self._core.give_up(rank, f"it cannot be reached at {call.at}: {outcome}")
            return
        if call.target > 0:
            _log.warning(
                "rank %d is on this host, but shares no memory with rank %d: they talk over the "
                "network",
                *(rank, self._member.rank),
            )
        self.guard.connected.add(call.seat)
        self._adopt(call.seat, outcome)

    def _adopt(self, seat: Seat, connection: socket.socket) -> None:
        rank, lane = seat
        try:
            prepare(connection)
        except OSError as error:  # It is gone already; the engine finds out.
            _log.info("rank %d: %s", rank, error)
        connection.setblocking(False)
        self._core.adopt(lane, rank, connection.detach())
