"""Brings the ranks of one job together: they publish who they are, agree, and connect."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import TypeVar

from sparsewire._core import WIRE_VERSION
from sparsewire.errors import Error, MismatchError, ProtocolError
from sparsewire.meeting.handshake import KEY_SIZE, derive, worker_key
from sparsewire.meeting.mesh import (
    Channels,
    Membership,
    close_channels,
    connect_aggregators,
    connect_ranks,
)
from sparsewire.meeting.place import Place
from sparsewire.meeting.sockets import (
    LocalAddress,
    bind,
    bind_local,
    host_identity,
    is_loopback,
    local_address,
    local_end,
)
from sparsewire.options import Address, Options

_ADVICE = {
    "wire_version": "install the same version of sparsewire on all ranks",
    "world_size": "start all ranks with the same WORLD_SIZE",
    "lanes": "set SPARSEWIRE_LANES, or pass lanes=, alike on all ranks",
    "block": "set SPARSEWIRE_BLOCK alike on all ranks",
    "window": "set SPARSEWIRE_WINDOW alike on all ranks",
    "peer_timeout": "set SPARSEWIRE_PEER_TIMEOUT alike on all ranks",
    "link": "set SPARSEWIRE_LINK alike on all ranks",
    "aggregators": "set SPARSEWIRE_AGGREGATORS alike on all ranks, in the same order",
    "hosts": "set SPARSEWIRE_HOSTS alike on all ranks",
}

_epochs = itertools.count()

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What must be alike on all ranks."""

    wire_version: int
    world_size: int
    lanes: int
    block: int
    window: int
    peer_timeout: float
    aggregators: str
    hosts: str
    link: str = ""


@dataclass(frozen=True)
class Record:
    """What one rank publishes: in two lines, so that equal settings need not be read again.

    Only rank 0's tells of the job: number, epoch and secret.
    """

    settings: Settings
    identity: str
    host: str = ""
    port: int = 0
    door: str = ""
    """Where processes of this host knock; none where it does not share memory."""
    job: int = 0
    epoch: int = 0
    secret: str = ""

    def encode(self) -> bytes:
        own = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        return _encoded(self.settings) + b"\n" + json.dumps(own).encode()

    @classmethod
    def decode(cls, data: bytes, expected: Settings) -> Record:
        """Raises ProtocolError for anything but a complete record."""
        first, _, second = data.partition(b"\n")
        try:
            settings = expected
            if first != _encoded(expected):
                settings = _well_typed(Settings(**json.loads(first)))
            return _well_typed(cls(settings, **json.loads(second)))
        except (TypeError, ValueError, RecursionError):
            raise ProtocolError(
                "there is something else where a rank's record should be: install the same "
                "version of sparsewire on all ranks, and have them meet in a fresh place"
            ) from None


@cache
def _encoded(settings: Settings) -> bytes:
    return json.dumps(asdict(settings)).encode()


def _well_typed(values: T) -> T:
    """Raises TypeError where a field is of another type than it says."""
    for name, kind in _types(type(values).__name__):
        if type(getattr(values, name)).__name__ != kind:
            raise TypeError(name)
    return values


@cache
def _types(name: str) -> list[tuple[str, str]]:
    kind = Record if name == "Record" else Settings
    return [(each.name, str(each.type)) for each in fields(kind)]


@dataclass(frozen=True)
class Connected:
    """`channels[lane][peer]`, or `channels[lane][aggregator]`, and the number of each rank's host.

    No hosts are named where every rank speaks for itself.
    """

    channels: Channels
    hosts: list[int] = field(default_factory=list)


def connect(
    options: Options, place: Place, environment: Mapping[str, str], deadline: float
) -> Connected:
    """Connect this rank to all others, or to all aggregators; a collective call.

    Raises Timeout that names the
    missing ranks once it is `deadline` on the monotonic clock, MismatchError, AuthenticationError,
    or Error.
    """
    mine = _record(options)
    if options.aggregators:
        return Connected(_join_aggregators(options, place, mine, deadline))
    with ExitStack() as held:
        doors = [held.enter_context(closing(bind(local_address(environment), 0)))]
        host, port = local_end(doors[0])
        mine = replace(mine, host=host, port=port)
        if options.shared_memory and (local := bind_local()):
            doors.append(held.enter_context(closing(local[0])))
            mine = replace(mine, door=local[1].name)
        records = _meet(options, place, mine)
        _check_reachable(records)
        # Nobody is let in before the key is known: who comes earlier waits in the door's queue.
        member = _membership(records[0], options)
        addresses = [Address(record.host, record.port) for record in records]
        near = _neighbours(records, mine)
        channels = connect_ranks(member, doors, addresses, deadline, near)
        return Connected(channels, [] if options.hosts == "flat" else _hosts(records))


def _hosts(records: list[Record]) -> list[int]:
    names = [record.identity for record in records]
    return [names.index(name) for name in names]


def _neighbours(records: list[Record], mine: Record) -> dict[int, LocalAddress]:
    """The ranks that share memory with this one."""
    return {
        rank: LocalAddress(record.door)
        for rank, record in enumerate(records)
        if record.door and mine.door and record.identity == mine.identity
    }


def _join_aggregators(options: Options, place: Place, mine: Record, deadline: float) -> Channels:
    member = _membership(_meet(options, place, mine)[0], options)
    may_register = not options.secret
    channels = connect_aggregators(member, options.aggregators, deadline, may_register=may_register)
    try:
        # What an aggregator sends to all ranks must reach all.
        for _ in place.all_gather(b"connected"):
            pass
    except BaseException:
        close_channels(channels)
        raise
    return channels


def _meet(options: Options, place: Place, mine: Record) -> list[Record]:
    """The records of all ranks, which agree with `mine`."""
    records = []
    with closing(place.all_gather(mine.encode())) as gathered:
        for rank, data in enumerate(gathered):
            records.append(Record.decode(data, mine.settings))
            # Who expects too many ranks would wait for them.
            _compare(mine, records[-1], options.rank, rank, "world_size")
    for rank, record in enumerate(records):
        for name in _ADVICE if record.settings != mine.settings else ():
            _compare(mine, record, options.rank, rank, name)
    return records


def _compare(mine: Record, other: Record, my_rank: int, rank: int, name: str) -> None:
    ours, theirs = getattr(mine.settings, name), getattr(other.settings, name)
    if ours != theirs:
        raise MismatchError(
            f"ranks disagree on {name.replace('_', ' ')}: {ours!r} on rank {my_rank}, "
            f"{theirs!r} on rank {rank}. Advice: {_ADVICE[name]}"
        )


def _record(options: Options) -> Record:
    """What this rank publishes; rank 0 starts a job with it."""
    settings = Settings(
        wire_version=WIRE_VERSION,
        world_size=options.world_size,
        lanes=options.lanes,
        block=options.block,
        window=options.window,
        peer_timeout=options.peer_timeout,
        aggregators=",".join(map(str, options.aggregators)),
        hosts=options.hosts,
        link=str(options.link) if options.link else "",
    )
    record = Record(settings, host_identity())
    if options.rank != 0:
        return record
    secret = secrets.token_hex(KEY_SIZE)
    return replace(record, job=secrets.randbits(64), epoch=next(_epochs), secret=secret)


def _membership(first: Record, options: Options) -> Membership:
    key = _key(first, options)
    return Membership(first.job, first.epoch, options.rank, options.world_size, options.lanes, key)


def _key(first: Record, options: Options) -> bytes:
    """The key of this job's connections. The records alone do not give away a shared secret."""
    try:
        secret = bytes.fromhex(first.secret)
    except ValueError:
        secret = b""
    is_job = 0 <= first.job < 2**64 and 0 <= first.epoch < 2**32
    if len(secret) != KEY_SIZE or not is_job:
        raise ProtocolError("rank 0 published no valid job: use a fresh meeting place")
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
