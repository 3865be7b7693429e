"""The meeting place over TCP for all ranks but rank 0: a connection with rank 0."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Generator

from sparsewire.errors import ProtocolError, Timeout
from sparsewire.meeting.contact.dial import converse, dial
from sparsewire.meeting.contact.handshake import Hello, Role, new_nonce
from sparsewire.meeting.contact.sockets import prepare
from sparsewire.meeting.contact.waiting import told
from sparsewire.meeting.places.place import absent, lost, split_records
from sparsewire.meeting.places.tcp_records import (
    RECORD_MAX,
    check_size,
    error_of,
    frame,
    next_record,
)
from sparsewire.options import Address, Options

# The other end's giving up may take so long.
_PATIENCE_S = 5.0
_PAUSE_S = 0.05
# Silences of 10 s each. Rank 0 listens a moment before it answers.
_SILENCES_MAX = 2


class Guest:
    """The place as all ranks but rank 0 see it: a connection with that one."""

    def __init__(self, address: Address, key: bytes, options: Options, deadline: float) -> None:
        self._address, self._key = address, key
        self._rank, self._world_size = options.rank, options.world_size
        self._deadline = deadline
        self._connection: socket.socket | None = None

    def all_gather(self, record: bytes) -> Generator[bytes]:
        check_size(record)
        try:
            yield self._swap(record)
            what = f"the other ranks, which the log of rank 0 at {self._address} names"
            records = split_records(self._next(what))
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
                # A rank that cannot send any more may still read why.
                with contextlib.suppress(ConnectionError):
                    self._connection.sendall(frame(record, self._deadline - time.monotonic()))
                return self._next(f"rank 0 at {self._address}")
            except ConnectionError:
                if not is_newcomer or time.monotonic() >= self._deadline:
                    raise
            self.close()
            self._connection = None
            time.sleep(_PAUSE_S)

    def fail(self, error: BaseException) -> None:
        """Rank 0 sees that this one leaves."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _next(self, awaited: str) -> bytes:
        """The record of rank 0, and then, as one, those of all others; or why it leaves."""
        assert self._connection
        self._connection.settimeout(max(self._deadline - time.monotonic(), 0) + _PATIENCE_S)
        with told(self._rank, self._world_size, lambda: awaited):
            left, record = converse(self._connection, next_record(self._world_size * RECORD_MAX))
        if left == 0:
            raise error_of(record)
        return record

    def _dial(self) -> socket.socket:
        hello = Hello(Role.NEWCOMER, 0, 0, self._rank, 0, 0, self._world_size, new_nonce())
        try:
            connection = dial(
                *("rank 0", self._address, hello, self._key, self._deadline),
                silences_max=_SILENCES_MAX,
            )
        except ProtocolError as error:
            raise ProtocolError(
                f"what listens at {self._address} is not rank 0 of a sparsewire job ({error}): "
                "choose another MASTER_PORT, or pass store="
            ) from error
        except Timeout as error:
            advice = "Are MASTER_ADDR and MASTER_PORT the same on all ranks?"
            raise Timeout(f"{error}. {advice}") from error
        prepare(connection)
        return connection
