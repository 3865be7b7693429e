"""Ranks that meet over TCP: rank 0 listens, takes a record from each rank, and gives all to all.

Whoever connects must prove the job's secret first. Without a secret that keeps out only those who
speak another language; what each may send is bounded all the same. Rank 0 listens until the ranks
have met once; their connections stay for further records, until it closes them.

Each record travels behind its size and the milliseconds that its sender still waits. With 0 rank 0
gives up, and its record lists who is missing.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
import warnings
from collections.abc import Generator, Iterator
from functools import partial

from sparsewire.errors import Error, ProtocolError, Timeout
from sparsewire.meeting import shared_mesh
from sparsewire.meeting.handshake import (
    Guard,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    meeting_key,
    new_nonce,
    receive,
)
from sparsewire.meeting.listener import STRANGERS_MAX, Listener
from sparsewire.meeting.mesh import converse, dial, name_ranks
from sparsewire.meeting.place import Place, absent, join_records, lost, split_records
from sparsewire.meeting.sockets import bind, prepare, raise_descriptor_limit
from sparsewire.options import Address, Options, check_secret

RECORD_MAX = 64 * 1024
RANKS_MAX = 4096

_HEADER = struct.Struct("!II")
# What follows a handshake at once, or the other end's giving up, may take so long.
_PATIENCE_S = 5.0
_MOMENT_S = 0.001
_PAUSE_S = 0.05


class TcpStore:
    """Deprecated: where ranks meet over TCP, for `init`. It keeps no values any more."""

    def __init__(
        self, host: str, port: int, is_server: bool, timeout: float = 300.0, *, secret: bytes = b""
    ) -> None:
        """Rank 0 listens at `host`:`port`, and `init` has its own time limit.

        All ranks pass the same `secret`, or none.
        """
        warnings.warn(
            "sparsewire.TcpStore keeps no values any more, and will go: set MASTER_ADDR and "
            "MASTER_PORT, or pass a torch.distributed.TCPStore to sparsewire.init",
            DeprecationWarning,
            stacklevel=2,
        )
        self.address = Address(host, port)
        self.secret = check_secret(secret)


def tcp_place(address: Address, secret: bytes, options: Options, deadline: float) -> Place:
    """The ranks' place at `address`, until `deadline` on the monotonic clock.

    Raises Error where rank 0 cannot listen there.
    """
    kind = Guest if options.rank else Host
    return kind(address, meeting_key(secret), options, deadline)


def _frame(record: bytes, left: float) -> bytes:
    """A record on its way, from a rank that still waits for `left` seconds."""
    return _HEADER.pack(max(1, int(1000 * left)), len(record)) + record


def _check_size(record: bytes) -> None:
    if len(record) > RECORD_MAX:
        raise ValueError(f"a record may have {RECORD_MAX} bytes, not {len(record)}")


def _next_record(size_max: int = RECORD_MAX) -> Handshake[tuple[float, bytes]]:
    """Reads seconds that the sender still waits, and its record."""
    milliseconds, size = _HEADER.unpack((yield b"", _HEADER.size))
    if size > size_max:
        raise ProtocolError(f"a record of {size} bytes: do all ranks run the same version?")
    return milliseconds / 1000, (yield b"", size)


class Guest:
    """The place as all ranks but rank 0 see it: a connection with that one."""

    def __init__(self, address: Address, key: bytes, options: Options, deadline: float) -> None:
        self._address, self._key = address, key
        self._rank, self._world_size = options.rank, options.world_size
        self._deadline = deadline
        self._connection: socket.socket | None = None

    def all_gather(self, record: bytes) -> Generator[bytes]:
        _check_size(record)
        try:
            yield self._swap(record)
            records = split_records(self._next())
        except TimeoutError as error:
            raise absent([0], error) from error
        except OSError as error:
            raise lost(f"{self._address}: {error}") from error
        yield from records
        if len(records) < self._world_size - 1:
            raise lost(f"rank 0 found no use for the record of rank {len(records)}")

    def _swap(self, record: bytes) -> bytes:
        """The record of rank 0 for the own one; a newcomer that is dropped before comes again."""
        is_newcomer = self._connection is None
        while True:
            self._connection = self._connection or self._dial()
            try:
                self._connection.sendall(_frame(record, self._deadline - time.monotonic()))
                return self._next()
            except ConnectionError:
                if not is_newcomer or time.monotonic() >= self._deadline:
                    raise
            self.close()
            self._connection = None
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> bytes:
        """The record of rank 0, and then, as one, those of all others.

        Who is missing rank 0 knows, so it has the last word.
        """
        assert self._connection
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0) + _PATIENCE_S)
        left, record = converse(self._connection, _next_record(self._world_size * RECORD_MAX))
        if left == 0:
            raise absent(json.loads(record), "the time to start is over")
        return record

    def _dial(self) -> socket.socket:
        hello = Hello(Role.NEWCOMER, 0, 0, self._rank, 0, 0, self._world_size, new_nonce())
        try:
            connection = dial("rank 0", self._address, hello, self._key, self._deadline)
        except ProtocolError as error:
            raise ProtocolError(
                f"what listens at {self._address} is not rank 0 of a sparsewire job: "
                "choose another MASTER_PORT, or pass store="
            ) from error
        except Timeout as error:
            advice = "Are MASTER_ADDR and MASTER_PORT the same on all ranks?"
            raise Timeout(f"{error}. {advice}") from error
        prepare(connection)
        return connection


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
            raise Refused(Reason.DUPLICATE)


def _receive_newcomer(
    key: bytes, guests: dict[int, socket.socket]
) -> Handshake[tuple[int, float, bytes]]:
    """The rank of one that proves itself, and what comes with its first record."""
    hello = yield from receive(NewcomerGuard(key, guests))
    left, record = yield from _next_record()
    return hello.rank, left, record


class Host:
    """The place as rank 0 sees it, which serves the others while it waits for them itself.

    With its first record a rank takes its place, so that who has none to send holds up nobody.
    """

    def __init__(self, address: Address, key: bytes, options: Options, deadline: float) -> None:
        self._guests: dict[int, socket.socket] = {}
        strangers_max = max(STRANGERS_MAX, 2 * options.world_size)
        needed = options.world_size + strangers_max
        raise_descriptor_limit(shared_mesh.connections_most() + needed)
        self._listener = Listener(
            partial(_receive_newcomer, key, self._guests),
            bind(*address),
            strangers_max=strangers_max,
        )
        self._world_size = options.world_size
        self._deadline = deadline
        self._records: dict[int, bytes] = {}

    def all_gather(self, record: bytes) -> Generator[bytes]:
        _check_size(record)
        self._records = {0: record}
        self._tell_all(record)
        for rank in range(self._world_size):
            while rank not in self._records:
                self._hear(rank)
            try:
                yield self._records[rank]
            except GeneratorExit:
                self._show_records(rank)
                raise
        # Before anybody has all: who comes again shall meet the next listener, and not this one.
        self._listener.close()
        self._tell_all(self._all_but_own(self._world_size))

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
            self._admit(left)
            return
        with contextlib.suppress(TimeoutError), self._not_leaving(rank):
            self._read(rank, left)

    def _admit(self, limit: float) -> None:
        for connection, (rank, left, record) in self._listener.poll(limit):
            with contextlib.suppress(OSError):
                prepare(connection)
                # The own record tells a rank that expects another number of ranks.
                connection.settimeout(_PATIENCE_S)
                connection.sendall(self._frame(self._records[0]))
                if rank < self._world_size and rank not in self._guests:
                    self._guests[rank] = connection
                    self._keep(rank, left, record)
                    continue
            connection.close()

    def _read(self, rank: int, limit: float) -> None:
        self._guests[rank].settimeout(limit)
        self._keep(rank, *converse(self._guests[rank], _next_record()))

    def _keep(self, rank: int, left: float, record: bytes) -> None:
        self._records[rank] = record
        # Once one has given up, all others wait in vain.
        self._deadline = min(self._deadline, time.monotonic() + left)

    def _tell_all(self, record: bytes) -> None:
        frame = self._frame(record)
        for rank, connection in self._guests.items():
            with self._not_leaving(rank):
                connection.settimeout(max(self._deadline - time.monotonic(), _MOMENT_S))
                connection.sendall(frame)

    def _frame(self, record: bytes) -> bytes:
        return _frame(record, self._deadline - time.monotonic())

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

    def _give_up(self) -> Timeout:
        for rank in self._guests:
            with contextlib.suppress(Error, OSError):
                self._read(rank, _MOMENT_S)
        missing = [rank for rank in range(self._world_size) if rank not in self._records]
        last_word = json.dumps(missing).encode()
        for connection in self._guests.values():
            with contextlib.suppress(OSError):
                connection.sendall(_HEADER.pack(0, len(last_word)) + last_word)
        return absent(missing, "the time to start is over")
