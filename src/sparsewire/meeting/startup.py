"""Brings the ranks of one job together: they publish who they are, agree, and connect."""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from typing import TypeVar

from sparsewire._core import WIRE_VERSION
from sparsewire._core import Mesh as Core
from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError
from sparsewire.meeting import shared_mesh
from sparsewire.meeting.handshake import KEY_SIZE, derive, worker_key
from sparsewire.meeting.mesh import Channels, Membership, close_channels, dial_aggregators
from sparsewire.meeting.place import Place
from sparsewire.meeting.porter import Porter, targets_of
from sparsewire.meeting.shared_mesh import SharedMesh, Terms
from sparsewire.meeting.sockets import (
    LocalAddress,
    bind,
    bind_local,
    host_identity,
    is_loopback,
    local_address,
    local_end,
    raise_descriptor_limit,
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
    "cuda": "set SPARSEWIRE_CUDA alike on all ranks",
}

_EPOCH_BITS = 20
_epochs = itertools.count(step=2)
"""Of the jobs and groups that this process leads. The number behind each is for its first use."""

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
    cuda: str
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
    meshes: list = field(default_factory=list)  # type: ignore[type-arg]
    """Those that a group may share: the identity of each, and the rank there."""
    proof: str = ""
    """That this rank knows the shared secret: a number, and what the secret makes of it."""

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
class Joined:
    """A group of a mesh's ranks: the ranks `members` there, in their order in the group.

    `hosts` has the number of each rank's host. The mesh is held for the group, which releases it.
    """

    mesh: SharedMesh
    number: int
    members: list[int]
    hosts: list[int]


def connect_aggregators(options: Options, place: Place, deadline: float) -> Channels:
    """Connect this rank to all aggregators; a collective call. Raises like `join_group`."""
    member = _membership(_meet(options, place, _record(options))[0], options)
    may_register = not options.secret
    channels = dial_aggregators(member, options.aggregators, deadline, may_register=may_register)
    try:
        # What an aggregator sends to all ranks must reach all.
        for _ in place.all_gather(b"connected"):
            pass
    except BaseException:
        close_channels(channels)
        raise
    return channels


def join_group(options: Options, place: Place, environment: Mapping[str, str]) -> Joined:
    """Make a group with all other ranks; a collective call.

    It shares a mesh that all ranks have in common already, or makes one, which connects as it is
    used. Raises Timeout that names the ranks that do not come, MismatchError, AuthenticationError,
    or Error.
    """
    terms = shared_mesh.terms_of(options)
    with shared_mesh.fitting(terms) as meshes, ExitStack() as doors:
        mine = replace(_record(options), meshes=[[mesh.identity, mesh.rank] for mesh in meshes])
        mine, opened = _open_doors(options, environment, mine, doors)
        records = _meet(options, place, mine)
        _check_reachable(records)
        _check_secrets(records, options)
        hosts = _hosts(records)
        for mesh in meshes:
            if (members := _members(mesh.identity, records)) is not None:
                number = _group_number(members[0], records[0].epoch)
                return Joined(mesh.hold(), number, members, hosts)
        mesh = _make_mesh(options, terms, records, mine, opened)
        doors.pop_all()  # The mesh has them.
        members = list(range(options.world_size))
        return Joined(mesh, _group_number(0, records[0].epoch), members, hosts)


def _open_doors(
    options: Options, environment: Mapping[str, str], mine: Record, doors: ExitStack
) -> tuple[Record, list[socket.socket]]:
    """Listen, and tell of it in the record. Who comes before anybody is let in waits in a queue."""
    opened = [doors.enter_context(closing(bind(local_address(environment), 0)))]
    host, port = local_end(opened[0])
    mine = replace(mine, host=host, port=port)
    if options.shared_memory and (local := bind_local()):
        opened.append(doors.enter_context(closing(local[0])))
        mine = replace(mine, door=local[1].name)
    return mine, opened


def _members(identity: str, records: list[Record]) -> list[int] | None:
    """The ranks of all in a mesh; None where not all have it."""
    ranks = [dict(record.meshes).get(identity) for record in records]
    return None if None in ranks else ranks  # type: ignore[return-value]


def _group_number(leader: int, epoch: int) -> int:
    """No two groups of a mesh have the same: by who leads it there, and how many it led before."""
    return leader << _EPOCH_BITS | epoch & ((1 << _EPOCH_BITS) - 1)


def _make_mesh(
    options: Options,
    terms: Terms,
    records: list[Record],
    mine: Record,
    doors: list[socket.socket],
) -> SharedMesh:
    raise_descriptor_limit(len(records) * options.lanes)
    member = _membership(records[0], options)
    near = _neighbours(records, mine)
    targets = targets_of([Address(record.host, record.port) for record in records], near)
    core = Core(
        options.rank,
        options.world_size,
        lanes=options.lanes,
        peer_timeout=options.peer_timeout,
        start_timeout=options.start_timeout,
        memory=options.memory << 20,
        neighbours=len(near),
    )
    make_porter = partial(Porter, core, member, doors, targets, options.peer_timeout)
    identity = f"{member.job:016x}.{member.epoch}"
    return SharedMesh(identity, options.rank, terms, core, make_porter)


def _hosts(records: list[Record]) -> list[int]:
    names = [record.identity for record in records]
    first = {name: rank for rank, name in reversed(list(enumerate(names)))}
    return [first[name] for name in names]


def _neighbours(records: list[Record], mine: Record) -> dict[int, LocalAddress]:
    """The ranks that share memory with this one."""
    return {
        rank: LocalAddress(record.door)
        for rank, record in enumerate(records)
        if record.door and mine.door and record.identity == mine.identity
    }


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
        cuda=options.cuda,
        link=str(options.link) if options.link else "",
    )
    record = Record(settings, host_identity(), proof=_prove(options, secrets.token_hex(16)))
    if options.rank != 0:
        return record
    secret = secrets.token_hex(KEY_SIZE)
    return replace(record, job=secrets.randbits(64), epoch=next(_epochs), secret=secret)


def _prove(options: Options, number: str) -> str:
    return f"{number} {derive(number.encode(), 'record', options.secret).hex()}"


def _check_secrets(records: list[Record], options: Options) -> None:
    for rank, record in enumerate(records):
        if not hmac.compare_digest(record.proof, _prove(options, record.proof.partition(" ")[0])):
            raise AuthenticationError(
                f"rank {rank} has another secret than rank {options.rank}: set the same "
                "SPARSEWIRE_SECRET everywhere"
            )


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
