"""Brings the ranks of one job together: they publish who they are, agree, and connect."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace

from sparsewire._core import WIRE_VERSION
from sparsewire.errors import Error, MismatchError, ProtocolError, Timeout
from sparsewire.meeting.handshake import KEY_SIZE, derive, worker_key
from sparsewire.meeting.interface import host_identity, is_loopback, local_address
from sparsewire.meeting.mesh import (
    Links,
    Membership,
    Reception,
    close_links,
    connect_aggregators,
    connect_ranks,
    name_ranks,
)
from sparsewire.meeting.rendezvous import Store, next_use
from sparsewire.options import Address, Options

_SETTINGS = {
    "wire_version": "install the same version of sparsewire on all ranks",
    "world_size": "start all ranks with the same WORLD_SIZE",
    "lanes": "set SPARSEWIRE_LANES, or pass lanes=, alike on all ranks",
    "block": "set SPARSEWIRE_BLOCK alike on all ranks",
    "window": "set SPARSEWIRE_WINDOW alike on all ranks",
    "peer_timeout": "set SPARSEWIRE_PEER_TIMEOUT alike on all ranks",
    "link": "set SPARSEWIRE_LINK alike on all ranks",
    "aggregators": "set SPARSEWIRE_AGGREGATORS alike on all ranks, in the same order",
}


@dataclass(frozen=True)
class Record:
    """What one rank publishes. Only rank 0's holds the number and the secret of the job."""

    wire_version: int
    world_size: int
    lanes: int
    block: int
    window: int
    peer_timeout: float
    aggregators: str
    identity: str
    link: str = ""
    host: str = ""
    port: int = 0
    job: int = 0
    secret: str = ""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """Raises ProtocolError for anything but a complete record."""
        try:
            values = json.loads(data)
            record = cls(**values)
            well_typed = all(
                type(getattr(record, field.name)).__name__ == field.type for field in fields(cls)
            )
        except (TypeError, ValueError, RecursionError):
            well_typed = False
        if not well_typed:
            raise ProtocolError(
                "the store holds something else where a rank's record should be: "
                "install the same version of sparsewire on all ranks, and use a fresh store"
            )
        return record


def join(options: Options, store: Store, environment: Mapping[str, str]) -> Links:
    """Connect this rank to all others, or to all aggregators; a collective call.

    Returns `links[lane][peer]`, or `links[lane][aggregator]`. Raises Timeout that names the
    missing ranks, MismatchError, AuthenticationError, or Error.
    """
    deadline = time.monotonic() + options.start_timeout
    use = next_use(store)
    board = _Board(store, f"sparsewire/{use}", options)
    mine = _record(options)
    if options.rank == 0:
        mine = replace(mine, job=secrets.randbits(64), secret=secrets.token_hex(KEY_SIZE))
        first = mine
    else:
        first = board.read(0)
    member = Membership(
        first.job, use, options.rank, options.world_size, options.lanes, _key(first, options)
    )
    if options.aggregators:
        return _join_aggregators(options, board, mine, member, deadline)
    with closing(Reception(local_address(environment), member)) as reception:
        host, port = reception.address
        board.publish(replace(mine, host=host, port=port))
        records = board.read_all(mine)
        _check_reachable(records)
        reception.start()
        addresses = [Address(record.host, record.port) for record in records]
        return connect_ranks(member, reception, addresses, deadline)


def _join_aggregators(
    options: Options, board: _Board, mine: Record, member: Membership, deadline: float
) -> Links:
    board.publish(mine)
    board.read_all(mine)
    may_register = not options.secret
    links = connect_aggregators(member, options.aggregators, deadline, may_register=may_register)
    try:
        board.wait_for_connected()
    except BaseException:
        close_links(links)
        raise
    return links


class _Board:
    """The part of a store that belongs to one communicator, one record per rank."""

    def __init__(self, store: Store, prefix: str, options: Options) -> None:
        self._store = store
        self._prefix = prefix
        self._rank = options.rank
        self._world_size = options.world_size

    def publish(self, record: Record) -> None:
        self._set("rank", record.encode())

    def read(self, rank: int) -> Record:
        """The record of `rank`, once it is there."""
        return Record.decode(self._get("rank", rank))

    def read_all(self, mine: Record) -> list[Record]:
        """The records of all ranks, which agree with `mine`.

        Every rank publishes before it compares, so that every rank finds out.
        """
        records = []
        for rank in range(self._world_size):
            records.append(self.read(rank))
            self._compare(mine, records[-1], rank)
        return records

    def _compare(self, mine: Record, other: Record, rank: int) -> None:
        for name, advice in _SETTINGS.items():
            ours, theirs = getattr(mine, name), getattr(other, name)
            if ours != theirs:
                raise MismatchError(
                    f"ranks disagree on {name.replace('_', ' ')}: {ours!r} on rank {self._rank}, "
                    f"{theirs!r} on rank {rank}. Advice: {advice}"
                )

    def wait_for_connected(self) -> None:
        """Return once all ranks are connected: what an aggregator sends to all must reach all.

        Rank 0 leaves last, because the store that it may host must outlive every reader.
        """
        self._set("connected", b"1")
        if self._rank != 0:
            self._get("ready", 0)
            self._set("left", b"1")
            return
        for rank in range(self._world_size):
            self._get("connected", rank)
        self._set("ready", b"1")
        for rank in range(1, self._world_size):
            self._get("left", rank)

    def _set(self, what: str, value: bytes) -> None:
        try:
            self._store.set(self._key(what, self._rank), value)
        except Exception as error:
            raise _lost(error) from error

    def _get(self, what: str, rank: int) -> bytes:
        try:
            return self._store.get(self._key(what, rank))
        except Exception as error:
            if not _is_timeout(error):
                raise _lost(error) from error
            missing = name_ranks(self._missing(what, rank))
            raise Timeout(
                f"{missing} did not show up at the rendezvous: look there for an earlier error, "
                f"or for another MASTER_ADDR, MASTER_PORT or WORLD_SIZE ({error})"
            ) from error

    def _missing(self, what: str, first: int) -> list[int]:
        check = getattr(self._store, "check", None)
        if check is None:
            return [first]
        missing = [first]
        # A store that is lost by now tells nothing about the others.
        with contextlib.suppress(Exception):
            for rank in range(first + 1, self._world_size):
                if not check([self._key(what, rank)]):
                    missing.append(rank)
        return missing

    def _key(self, what: str, rank: int) -> str:
        return f"{self._prefix}/{what}/{rank}"


def _is_timeout(error: Exception) -> bool:
    """Whether a store has waited in vain. Torch's stores say so in words only."""
    return isinstance(error, (Timeout, TimeoutError)) or "timeout" in str(error).lower()


def _lost(error: Exception) -> Error:
    if isinstance(error, Error):
        return error
    return Error(
        f"lost the store where the ranks meet: {error}. Look at the rank or the launcher that "
        "hosts it for an earlier error"
    )


def _record(options: Options) -> Record:
    return Record(
        wire_version=WIRE_VERSION,
        world_size=options.world_size,
        lanes=options.lanes,
        block=options.block,
        window=options.window,
        peer_timeout=options.peer_timeout,
        aggregators=",".join(map(str, options.aggregators)),
        identity=host_identity(),
        link=str(options.link) if options.link else "",
    )


def _key(first: Record, options: Options) -> bytes:
    """The key of this job's connections. The store alone does not give away a shared secret."""
    try:
        secret = bytes.fromhex(first.secret)
    except ValueError:
        secret = b""
    if len(secret) != KEY_SIZE or not 0 <= first.job < 2**64:
        raise ProtocolError("rank 0 published no valid job: use a fresh store")
    if options.aggregators and options.secret:
        return worker_key(options.secret, first.job)
    return derive(secret, "worker" if options.aggregators else "mesh", options.secret)


def _check_reachable(records: list[Record]) -> None:
    hosts = {record.identity for record in records}
    for rank, record in enumerate(records):
        if len(hosts) > 1 and is_loopback(record.host):
            raise Error(
                f"rank {rank} listens on {record.host}, which other hosts cannot reach: set "
                "SPARSEWIRE_IFNAME to the network interface that connects the hosts"
            )
