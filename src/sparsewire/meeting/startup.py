"""Brings the ranks of one job together: they publish their records, agree, and connect."""

from __future__ import annotations

import hmac
import itertools
import json
import secrets
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

from sparsewire._core import WIRE_VERSION
from sparsewire._core import Mesh as Core
from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError
from sparsewire.fields import read_fields
from sparsewire.meeting.aggregators.datagrams import Datagrams, open_datagrams
from sparsewire.meeting.contact.dial import (
    Channels,
    Membership,
    close_channels,
    dial_aggregators,
)
from sparsewire.meeting.contact.handshake import KEY_SIZE, derive, worker_key
from sparsewire.meeting.contact.racks import check_racks, rack_place
from sparsewire.meeting.contact.sockets import (
    LocalAddress,
    bind,
    bind_local,
    host_identity,
    is_loopback,
    local_addresses,
    local_end,
    raise_descriptor_limit,
)
from sparsewire.meeting.mesh import shared_mesh
from sparsewire.meeting.mesh.porter import Porter
from sparsewire.meeting.mesh.shared_mesh import SharedMesh, Terms
from sparsewire.meeting.network.lanes import lanes_of, processors_of
from sparsewire.meeting.network.resources import Resources, own_resources
from sparsewire.meeting.network.routes import Routes
from sparsewire.meeting.places.place import Place
from sparsewire.options import SETTINGS, Address, Options

_ALIKE = [name for name, setting in SETTINGS.items() if setting.is_alike]

_ADVICE = {
    **{
        name: f"set {setting.variable} alike on all ranks"
        for name, setting in SETTINGS.items()
        if name in (*_ALIKE, "link")
    },
    "wire_version": "install the same version of sparsewire on all ranks",
    "world_size": "start all ranks with the same WORLD_SIZE",
    "lanes": "set SPARSEWIRE_LANES, or pass lanes=, alike on all ranks",
    "racks": "set SPARSEWIRE_RACK on all ranks or on none, alike within a rack",
    "aggregators": "set SPARSEWIRE_AGGREGATORS alike on all ranks, in the same order",
    "interfaces": "name as many in SPARSEWIRE_IFNAME on all ranks, in the order of their networks",
}

_EPOCH_BITS = 20
_epochs = itertools.count(step=2)
"""Epochs of jobs and groups that this process leads; the number behind each is its first use's."""


@dataclass(frozen=True)
class Settings:
    """The settings that must be alike on all ranks."""

    wire_version: int
    world_size: int
    lanes: str
    block: int
    window: int
    peer_timeout: float
    aggregators: str
    hosts: str
    cuda: str
    transport: str
    arithmetic: str
    flows: int
    debug: bool
    interfaces: int
    racks: str
    link: str = ""


@dataclass(frozen=True)
class Record:
    """The record that one rank publishes, in two lines: equal settings need not be read again.

    Only rank 0's record tells of the job: number, epoch and secret.
    """

    settings: Settings
    identity: str
    addresses: list[Address] = field(default_factory=list)
    """Host and port of the rank's listener, for each of its interfaces."""
    door: str = ""
    """Name of the listener for processes of this host; empty without shared memory."""
    job: int = 0
    epoch: int = 0
    secret: str = ""
    meshes: list[Any] = field(default_factory=list)
    """Meshes that a group may share: the identity of each, and this rank's number there."""
    machine: str = ""
    processors: str = ""
    quota: float = 0.0
    speed_mbit: int = 0
    """The rank's resources for lanes: see `Resources`."""
    rack: str = ""
    aggregator: str = ""
    """With racks: the rank's own rack, and the rack's aggregator."""
    proof: str = ""
    """Proof that this rank knows the shared secret: a number, and what the secret makes of it."""

    @property
    def group(self) -> str:
        """The name of the group that rank 0 starts with this record."""
        return group_name(self.job)

    @property
    def resources(self) -> Resources:
        """The rank's resources for lanes."""
        own = self.machine, self.processors, self.quota
        return Resources(self.identity, *own, self.settings.interfaces, self.speed_mbit)

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
                settings = read_fields(Settings, json.loads(first))
            record = read_fields(cls, {**json.loads(second), "settings": settings})
            int(record.processors or "0", 16)
            return record
        except (TypeError, ValueError, RecursionError):
            raise ProtocolError(
                "there is something else where a rank's record should be: install the same "
                "version of sparsewire on all ranks, and have them meet in a fresh place"
            ) from None


@cache
def _encoded(settings: Settings) -> bytes:
    return json.dumps(asdict(settings)).encode()


@dataclass(frozen=True)
class Joined:
    """A group of a mesh's ranks: the ranks `members` there, in their order in the group.

    `name` is alike on all ranks, and no other group's. `hosts` has the number of each rank's host.
    The mesh is held for the group, which releases it.
    """

    name: str
    mesh: SharedMesh
    number: int
    members: list[int]
    hosts: list[int]


def connect_aggregators(
    options: Options, place: Place, deadline: float
) -> tuple[str, Channels, Datagrams | None]:
    """Connect this rank to all aggregators; a collective call. Raises like `join_group`.

    Returns the group's name, and its ways; the datagrams are None where none are sent.
    """
    records: list[Record] = []
    _meet(options, place, record_of(options), records)
    racks = [record.rack for record in records]
    _check_secrets(records, options)
    check_racks(racks, [record.aggregator for record in records])
    at = rack_place(racks, options.rank)
    member = _membership(records[0], options, options.lanes or 1)
    may_register = not options.secret
    aggregators = options.aggregators, at.rack, deadline
    channels = dial_aggregators(member, *aggregators, may_register=may_register)
    try:
        datagrams = None
        if options.has_datagrams:
            datagrams = open_datagrams(options, member, at, place)
        # An aggregator sends to all ranks, so all must be connected first.
        for _ in place.all_gather(b"connected"):
            pass
    except BaseException:
        close_channels(channels)
        raise
    return records[0].group, channels, datagrams


def join_group(options: Options, place: Place, environment: Mapping[str, str]) -> Joined:
    """Make a group with all other ranks; a collective call.

    It shares a mesh that all ranks have in common already, or makes one, which connects as it is
    used. Raises Timeout that names the ranks that do not come, MismatchError, AuthenticationError,
    or Error.
    """
    terms = shared_mesh.terms_of(options)
    with shared_mesh.fitting(terms) as meshes, ExitStack() as doors:
        interfaces = local_addresses(environment)
        resources = own_resources(interfaces)
        mine = record_of(options, resources.interfaces)
        mine = replace(
            mine,
            meshes=[[mesh.identity, mesh.rank] for mesh in meshes],
            machine=resources.machine,
            processors=resources.processors,
            quota=resources.quota,
            speed_mbit=resources.speed_mbit,
        )
        mine, opened = _open_doors(options, interfaces, mine, doors)
        records: list[Record] = []
        try:
            _meet(options, place, mine, records)
            _check_reachable(records)
            _check_secrets(records, options)
        except BaseException as error:
            _refuse_group(meshes, records, options.rank, error)
            raise
        hosts = _hosts(records)
        # All ranks take the same one, in whatever order each has come to have them.
        for mesh in sorted(meshes, key=lambda mesh: mesh.identity):
            if (members := _members(mesh.identity, records)) is not None:
                number = _group_number(members[0], records[0].epoch)
                return Joined(records[0].group, mesh.hold(), number, members, hosts)
        lanes = options.lanes or lanes_of([record.resources for record in records]).number
        mesh = _make_mesh(options, lanes, terms, records, mine, opened)
        doors.pop_all()  # The mesh has them.
        number, members = _group_number(0, records[0].epoch), list(range(options.world_size))
        return Joined(records[0].group, mesh, number, members, hosts)


def _refuse_group(
    meshes: list[SharedMesh], records: list[Record], rank: int, error: BaseException
) -> None:
    """Answer members that think this rank is one, too; what they send holds up no other group."""
    why = f"{type(error).__name__}: {error}"
    for mesh in meshes if records else ():
        leader = dict(records[0].meshes).get(mesh.identity)
        if leader is not None:
            with suppress(MemoryError):
                mesh.core.fail_group(_group_number(leader, records[0].epoch), [], rank, why)


def _open_doors(
    options: Options, interfaces: list[str], mine: Record, doors: ExitStack
) -> tuple[Record, list[socket.socket]]:
    """Listen, and tell of it in the record. Early callers wait in a queue."""
    opened = [doors.enter_context(closing(bind(address, 0))) for address in interfaces]
    mine = replace(mine, addresses=[local_end(door) for door in opened])
    if options.shared_memory and (local := bind_local()):
        opened.append(doors.enter_context(closing(local[0])))
        mine = replace(mine, door=local[1].name)
    return mine, opened


def _members(identity: str, records: list[Record]) -> list[int] | None:
    """The ranks of all in a mesh; None where not all have it.

    Nor have they it in common if several are in one process, which tells all its meshes for each.
    """
    ranks = [dict(record.meshes).get(identity) for record in records]
    known = {rank for rank in ranks if rank is not None}
    return None if len(known) < len(ranks) else ranks  # type: ignore[return-value]


def _group_number(leader: int, epoch: int) -> int:
    """A group's number, unique in a mesh: its leader there, and how many groups that led before."""
    return leader << _EPOCH_BITS | epoch & ((1 << _EPOCH_BITS) - 1)


def _make_mesh(
    options: Options,
    lanes: int,
    terms: Terms,
    records: list[Record],
    mine: Record,
    doors: list[socket.socket],
) -> SharedMesh:
    raise_descriptor_limit(shared_mesh.connections_most() + len(records) * lanes)
    member = _membership(records[0], options, lanes)
    near = _neighbours(records, mine)
    routes = _routes(records, mine, near)
    core = Core(
        options.rank,
        options.world_size,
        lanes=lanes,
        peer_timeout=options.peer_timeout,
        start_timeout=options.start_timeout,
        memory=options.memory << 20,
        neighbours=len(near),
        processors=_processors(options, lanes, records),
    )
    make_porter = partial(Porter, core, member, doors, routes, options.peer_timeout)
    identity = f"{member.job:016x}.{member.epoch}"
    return SharedMesh(identity, options.rank, options.world_size, lanes, terms, core, make_porter)


def _processors(options: Options, lanes: int, records: list[Record]) -> list[int]:
    if lanes == 1 or options.affinity == "off":
        return []
    return processors_of([record.resources for record in records], options.rank, lanes)


def _routes(records: list[Record], mine: Record, near: dict[int, LocalAddress]) -> Routes:
    """The routes to all ranks. With one interface, the system chooses the way out."""
    own = [host for host, _ in mine.addresses] if len(mine.addresses) > 1 else []
    return Routes([record.addresses for record in records], near, own)


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


def _meet(options: Options, place: Place, mine: Record, records: list[Record]) -> None:
    """Find the records of all ranks, which agree with `mine`."""
    with closing(place.all_gather(mine.encode())) as gathered:
        for rank, data in enumerate(gathered):
            records.append(Record.decode(data, mine.settings))
            # A rank that expects too many ranks would wait for them.
            _compare(mine, records[-1], options.rank, rank, "world_size")
    for rank, record in enumerate(records):
        for name in _ADVICE if record.settings != mine.settings else ():
            _compare(mine, record, options.rank, rank, name)


def _compare(mine: Record, other: Record, my_rank: int, rank: int, name: str) -> None:
    ours, theirs = getattr(mine.settings, name), getattr(other.settings, name)
    if ours != theirs:
        raise MismatchError(
            f"ranks disagree on {name.replace('_', ' ')}: {ours!r} on rank {my_rank}, "
            f"{theirs!r} on rank {rank}. Advice: {_ADVICE[name]}"
        )


def group_name(job: int) -> str:
    return f"{job:016x}"


def record_of(options: Options, interfaces: int = 1) -> Record:
    """The record of this rank. Rank 0 starts a job with it."""
    named = ",".join(map(str, options.aggregators))
    settings = Settings(
        wire_version=WIRE_VERSION,
        world_size=options.world_size,
        lanes=str(options.lanes or "auto"),
        aggregators="" if options.rack else named,
        arithmetic="fixed" if options.adds_in_fixed_point else "exact",
        **{name: getattr(options, name) for name in _ALIKE if name != "arithmetic"},
        interfaces=interfaces,
        racks="named" if options.rack else "none",
        link=str(options.link) if options.link else "",
    )
    record = Record(settings, host_identity(), proof=_prove(options, secrets.token_hex(16)))
    if options.rack:
        record = replace(record, rack=options.rack, aggregator=named)
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


def _membership(first: Record, options: Options, lanes: int) -> Membership:
    key = _key(first, options)
    return Membership(first.job, first.epoch, options.rank, options.world_size, lanes, key)


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
        loopback = [host for host, _ in record.addresses if is_loopback(host)]
        if len(hosts) > 1 and loopback:
            raise Error(
                f"rank {rank} listens on {loopback[0]}, which other hosts cannot reach: set "
                "SPARSEWIRE_IFNAME to the network interface that connects the hosts"
            )
