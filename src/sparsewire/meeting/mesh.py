"""Connects the ranks of a job with each other, or with its aggregators, over proved connections."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sparsewire.errors import AuthenticationError, ProtocolError, Timeout
from sparsewire.meeting.handshake import (
    ANY_PEER,
    MAGIC,
    Guard,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    new_nonce,
    receive,
)
from sparsewire.meeting.listener import Listener
from sparsewire.meeting.sockets import CutShort, LocalAddress, connect, prepare, receive_exactly
from sparsewire.options import Address

_log = logging.getLogger(__name__)

_ATTEMPT_MAX_S = 10.0
_RETRY_FIRST_S = 0.01
_RETRY_MAX_S = 0.1

T = TypeVar("T")

Table = dict[tuple[int, int], socket.socket]
"""Connections by rank and lane."""

Channels = list[list[int]]
"""Descriptors as `channels[lane][peer]`, connected and non-blocking; -1 at the own rank."""


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


class MemberGuard(Guard):
    """Lets in the higher ranks of the job, and nobody else."""

    def __init__(self, member: Membership) -> None:
        self._member = member

    def key_for(self, hello: Hello) -> bytes:
        member = self._member
        if (hello.role, hello.job, hello.epoch) != (Role.PEER, member.job, member.epoch):
            raise Refused(Reason.WRONG_JOB)
        known = member.rank < hello.rank < member.world_size and hello.lane < member.lanes
        if not known or (hello.peer, hello.world_size) != (member.rank, member.world_size):
            raise Refused(Reason.WRONG_RANK)
        return member.key


def connect_ranks(
    member: Membership,
    doors: Sequence[socket.socket],
    addresses: Sequence[Address],
    deadline: float,
    neighbours: Mapping[int, LocalAddress] | None = None,
) -> Channels:
    """Dial every lower rank, then let in every higher one at `doors`; `addresses` by rank.

    Ranks of this host, `neighbours`, are dialled on its own sockets, and elsewhere where that
    fails. No rank waits for a higher one before it lets in, so all get through. Raises Timeout
    (naming ranks) at `deadline` on the monotonic clock, or AuthenticationError.
    """
    with _closed_on_error() as table:
        for rank in range(member.rank):
            near = (neighbours or {}).get(rank)
            for lane in range(member.lanes):
                table[rank, lane] = _dial_rank(member, rank, lane, addresses[rank], near, deadline)
        receive_ranks(member, doors, table, deadline)
        return _channels(table, member.lanes, member.world_size)


def _dial_rank(
    member: Membership,
    rank: int,
    lane: int,
    address: Address,
    near: LocalAddress | None,
    deadline: float,
) -> socket.socket:
    hello = member.hello(Role.PEER, rank, lane)
    name = f"rank {rank}"
    if near is not None:
        try:
            return _dial_once(name, near, hello, member.key, deadline)
        except OSError as error:
            _log.warning(
                "rank %d is on this host, but shares no memory with rank %d (%s): they talk over "
                "the network",
                *(rank, member.rank, error),
            )
    try:
        return dial(name, address, hello, member.key, deadline)
    except Timeout as error:
        # It lets in nobody before it has reached all lower ranks.
        raise Timeout(f"{error}. It may still wait for another rank itself") from error


def receive_ranks(
    member: Membership, doors: Sequence[socket.socket], table: Table, deadline: float
) -> None:
    """Let in all lanes of all higher ranks, into `table`. Raises Timeout; closes the doors."""
    with contextlib.closing(Listener(partial(receive, MemberGuard(member)), *doors)) as listener:
        while missing := missing_ranks(member, table):
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout(
                    f"{name_ranks(missing)} did not connect to rank {member.rank} at "
                    f"{listener.address}: look there for an earlier error, or for a firewall"
                )
            for connection, hello in listener.poll(left):
                # A caller whose attempt took too long has given it up and comes anew.
                if former := table.get((hello.rank, hello.lane)):
                    former.close()
                table[hello.rank, hello.lane] = connection


def missing_ranks(member: Membership, table: Table) -> list[int]:
    """Higher ranks of which at least one lane has not arrived."""
    return [
        rank
        for rank in range(member.rank + 1, member.world_size)
        if any((rank, lane) not in table for lane in range(member.lanes))
    ]


def connect_aggregators(
    member: Membership, aggregators: Sequence[Address], deadline: float, *, may_register: bool
) -> Channels:
    """Dial every lane of every aggregator; `channels[lane][aggregator]`. Raises like connect_ranks.

    `member.key` is the key for aggregators. With `may_register` an aggregator that does not know
    the job is given the key; without, it must prove that it knows it already.
    """
    with _closed_on_error() as table:
        for index, address in enumerate(aggregators):
            for lane in range(member.lanes):
                hello = member.hello(Role.WORKER, ANY_PEER, lane)
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
) -> socket.socket:
    """Connect and introduce, again and again until `deadline`; a refusal is final."""
    pause = _RETRY_FIRST_S
    while True:
        try:
            return _dial_once(name, address, hello, key, deadline, may_register=may_register)
        except OSError as error:
            if deadline - time.monotonic() <= pause:
                raise Timeout(f"{name} cannot be reached at {address}: {error}") from error
        time.sleep(pause)
        pause = min(2 * pause, _RETRY_MAX_S)


def _dial_once(
    name: str,
    address: Address | LocalAddress,
    hello: Hello,
    key: bytes,
    deadline: float,
    *,
    may_register: bool = False,
) -> socket.socket:
    try:
        handshake = introduce(hello, key, may_register=may_register)
        return attempt(address, handshake, deadline - time.monotonic())
    except AuthenticationError as error:
        raise AuthenticationError(f"{name} at {address}: {error}") from error


def attempt(
    address: Address | LocalAddress, handshake: Handshake[None], limit: float
) -> socket.socket:
    """One connection with a finished handshake; raises OSError where trying again may help."""
    connection = connect(address, min(max(limit, 0.001), _ATTEMPT_MAX_S))
    try:
        converse(connection, handshake)
        return connection
    except BaseException as error:
        connection.close()
        if isinstance(error, CutShort) and error.data and not error.data.startswith(MAGIC):
            raise ProtocolError("the other end is not a sparsewire listener") from error
        raise


def converse(connection: socket.socket, handshake: Handshake[T]) -> T:
    """Carry out this end of a handshake; raises what it raises, and OSError."""
    try:
        reply, size = next(handshake)
        while True:
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
