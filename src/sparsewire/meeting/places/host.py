"""The meeting place over TCP at rank 0: it lets the others in, and gives all records to all."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Generator, Iterator
from functools import partial

from sparsewire.errors import AuthenticationError, Error
from sparsewire.meeting.contact.dial import converse, name_ranks
from sparsewire.meeting.contact.handshake import (
    Guard,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    receive,
)
from sparsewire.meeting.contact.listener import STRANGERS_MAX, Listener, name_of
from sparsewire.meeting.contact.sockets import bind, prepare, raise_descriptor_limit
from sparsewire.meeting.contact.waiting import told
from sparsewire.meeting.mesh import shared_mesh
from sparsewire.meeting.places.doubts import Doubts
from sparsewire.meeting.places.place import absent, join_records
from sparsewire.meeting.places.tcp_records import check_size, frame, last_word, next_record
from sparsewire.options import Address, Options

_log = logging.getLogger(__name__)

RANKS_MAX = 4096

# Seconds for the record that follows a handshake at once.
_PATIENCE_S = 5.0
_MOMENT_S = 0.001


class NewcomerGuard(Guard):
    """Lets in each other rank once. Whether its world size is right, the records tell."""

    def __init__(self, key: bytes, guests: dict[int, socket.socket]) -> None:
        self._key = key
        self._guests = guests

    def key_for(self, hello: Hello) -> bytes:
        if hello.role is not Role.NEWCOMER:
            raise Refused(Reason.WRONG_JOB)
        if not 0 < hello.rank < RANKS_MAX:
            raise Refused(Reason.WRONG_RANK)
        return self._key

    def enter(self, hello: Hello, key: bytes) -> None:
        if hello.rank in self._guests:
            first = name_of(self._guests[hello.rank])
            raise Refused(Reason.DUPLICATE, f", as {hello.caller} at {first} is here already")


def _receive_newcomer(
    key: bytes, guests: dict[int, socket.socket]
) -> Handshake[tuple[int, float, bytes]]:
    """The rank of one that proves itself, and what comes with its first record."""
    hello = yield from receive(NewcomerGuard(key, guests))
    left, record = yield from next_record()
    return hello.rank, left, record


class Host:
    """The place as rank 0 sees it, which serves the others while it waits for them itself.

    With its first record a rank takes its place, so that a caller without a record holds up nobody.
    """

    def __init__(self, address: Address, key: bytes, options: Options, deadline: float) -> None:
        self._address = address
        self._guests: dict[int, socket.socket] = {}
        self._doubts = Doubts()
        strangers_max = max(STRANGERS_MAX, 2 * options.world_size)
        needed = options.world_size + strangers_max
        raise_descriptor_limit(shared_mesh.connections_most() + needed)
        self._listener = Listener(
            partial(_receive_newcomer, key, self._guests),
            _door(address),
            strangers_max=strangers_max,
            on_refusal=self._note_refusal,
        )
        self._world_size = options.world_size
        self._deadline = deadline
        self._records: dict[int, bytes] = {}
        self._has_said_why = False

    def all_gather(self, record: bytes) -> Generator[bytes]:
        check_size(record)
        self._records = {0: record}
        try:
            with told(0, self._world_size, self._awaited):
                yield from self._gather(record)
        except Error as error:
            self._say_why(error)
            raise

    def _gather(self, record: bytes) -> Generator[bytes]:
        self._tell_all(record)
        for rank in range(self._world_size):
            while rank not in self._records:
                self._hear(rank)
            try:
                yield self._records[rank]
            except GeneratorExit:
                self._show_records(rank)
                raise
        # Before any rank has all records: a rank that comes again shall meet the next listener.
        self._listener.close()
        self._tell_all(self._all_but_own(self._world_size))

    def fail(self, error: BaseException) -> None:
        self._say_why(Error(f"rank 0 could not start: {type(error).__name__}: {error}"))

    def close(self) -> None:
        # Nobody is let in any more, whatever is still under way.
        self._deadline = time.monotonic()
        self._listener.close()
        for connection in self._guests.values():
            connection.close()

    def _show_records(self, last: int) -> None:
        """Let all others see the records up to that of rank `last`, those too that come late."""
        end = min(self._deadline, time.monotonic() + _PATIENCE_S)
        while len(self._guests) < self._world_size - 1 and time.monotonic() < end:
            self._admit(end - time.monotonic())
        frame = self._frame(self._all_but_own(last + 1))
        for connection in self._guests.values():
            # Some have seen enough, and are gone.
            with contextlib.suppress(OSError):
                connection.settimeout(_MOMENT_S)
                connection.sendall(frame)

    def _all_but_own(self, end: int) -> bytes:
        return join_records([self._records[rank] for rank in range(1, end)])

    def _hear(self, rank: int) -> None:
        """Wait for the record of `rank`, at the door if it has not come yet."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._give_up()
        if rank not in self._guests:
            self._await_newcomers(left)
            return
        with contextlib.suppress(TimeoutError), self._not_leaving(rank):
            self._read(rank, left)

    def _await_newcomers(self, limit: float) -> None:
        patience = self._doubts.left(self._missing())
        if patience <= 0 and (error := self._doubts.error()):
            raise error
        self._admit(max(0.0, min(limit, patience)))

    def _note_refusal(self, refusal: Refused, address: str) -> None:
        rank = refusal.hello.rank if refusal.hello else 0
        is_missing = rank < self._world_size and rank not in self._guests
        if refusal.reason is Reason.WRONG_PROOF and is_missing:
            self._doubts.note_refusal(rank, address)

    def _admit(self, limit: float) -> None:
        for connection, (rank, left, record) in self._listener.poll(limit):
            with contextlib.suppress(OSError):
                prepare(connection)
                # The own record tells a rank that expects another number of ranks.
                connection.settimeout(_PATIENCE_S)
                connection.sendall(self._frame(self._records[0]))
                if rank < self._world_size and rank not in self._guests:
                    self._guests[rank] = connection
                    self._doubts.note_arrival(rank)
                    self._keep(rank, left, record)
                    continue
                if rank in self._guests:
                    self._refuse_twin(rank, connection)
            connection.close()

    def _refuse_twin(self, rank: int, connection: socket.socket) -> None:
        """Both came at once, so that neither was here when the other proved itself."""
        first, second = name_of(self._guests[rank]), name_of(connection)
        _log.warning("rank %d at %s is turned away, as one at %s is here", rank, second, first)
        connection.sendall(last_word(AuthenticationError(str(Refused(Reason.DUPLICATE)))))

    def _read(self, rank: int, limit: float) -> None:
        self._guests[rank].settimeout(limit)
        self._keep(rank, *converse(self._guests[rank], next_record()))

    def _keep(self, rank: int, left: float, record: bytes) -> None:
        self._records[rank] = record
        # Once a rank has given up, all others wait in vain.
        self._deadline = min(self._deadline, time.monotonic() + left)

    def _tell_all(self, record: bytes) -> None:
        frame = self._frame(record)
        for rank, connection in self._guests.items():
            with self._not_leaving(rank):
                connection.settimeout(max(self._deadline - time.monotonic(), _MOMENT_S))
                connection.sendall(frame)

    def _frame(self, record: bytes) -> bytes:
        return frame(record, self._deadline - time.monotonic())

    @contextlib.contextmanager
    def _not_leaving(self, rank: int) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except OSError as error:
            raise Error(
                f"{name_ranks([rank])} left before all ranks had met ({error}): look there for "
                "an earlier error"
            ) from error

    def _give_up(self) -> Error:
        for rank in self._guests:
            with contextlib.suppress(Error, OSError):
                self._read(rank, _MOMENT_S)
        return self._doubts.error() or absent(self._missing(), "the time to start is over")

    def _missing(self) -> list[int]:
        return [rank for rank in range(self._world_size) if rank not in self._records]

    def _awaited(self) -> str:
        missing = self._missing()
        return f"{name_ranks(missing)} at {self._address}" if missing else ""

    def _say_why(self, error: Error) -> None:
        """Tell all connected ranks why rank 0 leaves."""
        if self._has_said_why:
            return
        self._has_said_why = True
        for connection in self._guests.values():
            with contextlib.suppress(OSError):
                connection.settimeout(_MOMENT_S)
                connection.sendall(last_word(error))


def _door(address: Address) -> socket.socket:
    try:
        return bind(*address)
    except Error as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
            raise
        raise Error(
            f"rank 0 {error}: another job, or another process with RANK=0, has this port. Choose "
            "another MASTER_PORT, alike on all ranks, and start each rank once"
        ) from error
