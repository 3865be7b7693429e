"""Dials a listener, proves itself there, and connects the ranks of a job with its aggregators."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sparsewire.errors import AuthenticationError, ProtocolError, Timeout
from sparsewire.meeting.contact.handshake import (
    MAGIC,
    Handshake,
    Hello,
    Role,
    introduce,
    new_nonce,
)
from sparsewire.meeting.contact.keys import aggregator_number
from sparsewire.meeting.contact.sockets import CutShort, connect, prepare, receive_exactly
from sparsewire.meeting.contact.waiting import told
from sparsewire.options import Address

_ATTEMPT_MAX_S = 10.0
_RETRY_FIRST_S = 0.01
_RETRY_MAX_S = 0.1

T = TypeVar("T")


class Silence(TimeoutError):
    """A connection was made, and nothing came by it."""


Table = dict[tuple[int, int], socket.socket]
"""Connections by aggregator and lane."""

Channels = list[list[int]]
"""Descriptors as `channels[lane][aggregator]`, connected and non-blocking."""


@dataclass(frozen=True)
class Membership:
    """This rank's place in one job, and the key that all members share."""

    job: int
    epoch: int
    rank: int
    world_size: int
    lanes: int
    key: bytes = field(repr=False)

    def hello(self, role: Role, peer: int, lane: int) -> Hello:
        return Hello(
            role, self.job, self.epoch, self.rank, peer, lane, self.world_size, new_nonce()
        )


def dial_aggregators(
    member: Membership,
    aggregators: Sequence[Address],
    rack: int,
    deadline: float,
    *,
    may_register: bool,
) -> Channels:
    """Dial every lane of every aggregator, as a rank of that rack; `channels[lane][aggregator]`.

    Raises Timeout at `deadline` on the monotonic clock, or AuthenticationError.
    `member.key` is the key for aggregators. With `may_register` an aggregator that does not know
    the job is given the key; without, it must prove that it knows it already.
    """
    with _closed_on_error() as table:
        for index, address in enumerate(aggregators):
            for lane in range(member.lanes):
                hello = member.hello(Role.WORKER, aggregator_number(index, rack), lane)
                table[index, lane] = dial(
                    "aggregator", address, hello, member.key, deadline, may_register=may_register
                )
        return _channels(table, member.lanes, len(aggregators))


def dial(
    name: str,
    address: Address,
    hello: Hello,
    key: bytes,
    deadline: float,
    *,
    may_register: bool = False,
    silences_max: int | None = None,
) -> socket.socket:
    """Connect and introduce, again and again until `deadline`; a refusal is final.

    So is the last of `silences_max` attempts of 10 s at which somebody listens and says nothing:
    that is no listener of sparsewire (ProtocolError). An aggregator may wait for its parent.
    """
    pause, silences, reason = _RETRY_FIRST_S, 0, ""
    with told(hello.rank, hello.world_size, lambda: f"{name} at {address}{reason}"):
        while True:
            remaining = deadline - time.monotonic()
            try:
                return attempt(address, introduce(hello, key, may_register=may_register), remaining)
            except AuthenticationError as error:
                raise AuthenticationError(f"{name} at {address}: {error}") from error
            except OSError as error:
                silences += isinstance(error, Silence) and remaining >= _ATTEMPT_MAX_S
                if silences == silences_max:
                    raise ProtocolError(str(error)) from error
                if remaining <= pause:
                    raise Timeout(f"{name} cannot be reached at {address}: {error}") from error
                reason = f" ({error})"
            time.sleep(pause)
            pause = min(2 * pause, _RETRY_MAX_S)


def attempt(address: Address, handshake: Handshake[None], limit: float) -> socket.socket:
    """One connection with a finished handshake; raises OSError where trying again may help."""
    connection = connect(address, min(max(limit, 0.001), _ATTEMPT_MAX_S))
    try:
        converse(connection, handshake)
        return connection
    except BaseException as error:
        connection.close()
        if isinstance(error, TimeoutError):
            raise Silence("somebody listens there, but does not answer") from error
        if isinstance(error, CutShort) and error.data and not error.data.startswith(MAGIC):
            raise ProtocolError("the other end is not a sparsewire listener") from error
        raise


def converse(connection: socket.socket, handshake: Handshake[T]) -> T:
    """Carry out this end of a handshake; raises what it raises, and OSError."""
    try:
        reply, size = next(handshake)
        while True:
            if reply:  # The other end may have sent a reason before it closed.
                connection.sendall(reply)
            reply, size = handshake.send(receive_exactly(connection, size))
    except StopIteration as finished:
        outcome: T = finished.value
        return outcome


@contextmanager
def _closed_on_error() -> Iterator[Table]:
    """A table for connections, which are the caller's to keep only where nothing fails."""
    table: Table = {}
    try:
        yield table
    except BaseException:
        for connection in table.values():
            connection.close()
        raise


def _channels(table: Table, lanes: int, peers: int) -> Channels:
    channels = [[-1] * peers for _ in range(lanes)]
    for connection in table.values():
        prepare(connection)
        connection.setblocking(False)
    for (peer, lane), connection in table.items():
        channels[lane][peer] = connection.detach()
    return channels


def close_channels(channels: Channels) -> None:
    for descriptor in (one for lane in channels for one in lane if one >= 0):
        os.close(descriptor)


def name_ranks(ranks: Sequence[int]) -> str:
    named = ", ".join(str(rank) for rank in ranks[:16])
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
