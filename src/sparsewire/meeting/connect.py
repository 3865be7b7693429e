"""Makes communicators: finds the settings and the other ranks, starts the engine.

The ranks meet in the place that the caller passes, or that the launcher's environment names.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from sparsewire import launcher
from sparsewire._core import Communicator as Core
from sparsewire.collectives.communicator import Communicator
from sparsewire.engine import Engine
from sparsewire.lifetime import forget_in_child
from sparsewire.meeting.aggregators.datagrams import Datagrams
from sparsewire.meeting.places.mpi_place import as_mpi, mpi_place, mpi_ranks
from sparsewire.meeting.places.place import Place, attended
from sparsewire.meeting.places.store_place import FileStore, Store, StorePlace
from sparsewire.meeting.places.tcp_place import TcpStore, tcp_place
from sparsewire.meeting.sampled_link import measure
from sparsewire.meeting.startup import Joined, connect_aggregators, group_name, join_group
from sparsewire.meeting.window import Member, Shown
from sparsewire.options import Address, Options, resolve
from sparsewire.timeline import timeline_of

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_named: dict[tuple[str, str, str], Store] = {}

forget_in_child(_named.clear)


def init(
    store: Store | Intracomm | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: float | None = None,
    lanes: int | None = None,
    aggregators: Sequence[str] | None = None,
) -> Communicator:
    """Connect this process with the other ranks; a collective call.

    `store` is a key-value store that all ranks share, such as one of torch.distributed; without,
    the ranks meet at MASTER_ADDR:MASTER_PORT, or in the directory of SPARSEWIRE_RENDEZVOUS.
    It may also be an mpi4py communicator, over which the ranks meet then: `MPI.COMM_WORLD`, or a
    part of it made by `Split`. Each call makes a communicator of its own, with connections of its
    own; nothing mixes with the program's MPI messages, and MPI may be finalized afterwards.
    `rank` and `world_size` are those of the MPI communicator, else of the launcher, where not
    given. `timeout` in seconds is the limit for each collective (default 1800), and at most 300 of
    them for connecting. `lanes` is the number of progress threads, alike on all ranks;
    without, SPARSEWIRE_LANES says it, or the ranks agree by their processors and links.
    `aggregators` are addresses "host:port" of dedicated aggregators; without, the ranks share the
    work of aggregation.

    Raises ValueError for wrong settings, Timeout that names the ranks that are missing,
    MismatchError where ranks have different settings, AuthenticationError, or Error.
    """
    if (mpi := as_mpi(store)) is not None:
        rank, world_size = mpi_ranks(mpi, rank, world_size)
    options = resolve(
        os.environ,
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        lanes=lanes,
        aggregators=aggregators,
    )
    timeline_of(options.timeline, options.rank)  # Raises before others have waited.
    if options.world_size > 1 and not options.aggregators:
        return _among_ranks(store, options)
    return _alone_or_dedicated(store, options)


def _among_ranks(store: object, options: Options) -> Communicator:
    deadline = time.monotonic() + options.start_timeout
    with attended(open_place(store, options, os.environ, deadline)) as place:
        joined = join_group(options, place, os.environ)
        core = _core_of(joined, options)

        def set_up(communicator: Communicator) -> None:
            core.set_link(*(options.link or measure(communicator, joined, place, options)))
            communicator.engine.start_counting()

        return _communicator(core, options, joined.name, joined.mesh.release, set_up)


def _communicator(
    core: Core,
    options: Options,
    group: str,
    release: Callable[[], object] = lambda: None,
    set_up: Callable[[Communicator], None] = lambda communicator: None,
) -> Communicator:
    """A communicator that `sparsewire top` sees until it is closed."""
    shown = Shown()

    def leave() -> None:
        shown.hide()
        release()

    try:
        communicator = Communicator(Engine(core, options, leave), options)
    except BaseException as error:
        core.abort(f"rank {options.rank} could not make its communicator: {error}")
        core.close(0.0)
        release()
        raise
    try:
        set_up(communicator)
    except BaseException:
        communicator.close()
        raise
    if options.is_shown:
        member = Member(group, options.rank, options.world_size)
        shown.show(communicator.engine.survey, member)
    return communicator


def _core_of(joined: Joined, options: Options) -> Core:
    try:
        return Core(
            joined.mesh.core,
            joined.number,
            joined.members,
            options.rank,
            block=options.block,
            window=options.window,
            timeline=timeline_of(options.timeline, options.rank),
            hosts=[] if options.hosts == "flat" else joined.hosts,
        )
    except BaseException as error:
        _tell_members(joined, options, error)
        joined.mesh.release()
        raise


def _tell_members(joined: Joined, options: Options, error: BaseException) -> None:
    """They would wait for this rank, as long as it may take to start."""
    why = f"{type(error).__name__}: {error}"
    with contextlib.suppress(MemoryError):
        joined.mesh.core.fail_group(joined.number, joined.members, options.rank, why)


def _alone_or_dedicated(store: object, options: Options) -> Communicator:
    """Through dedicated aggregators there is only one way to go, so that nothing is measured."""
    # A single rank has nobody to meet and nothing to send, not even to an aggregator.
    group = group_name(secrets.randbits(64))
    channels, datagrams = [[-1]] * (options.lanes or 1), None
    if options.world_size > 1:
        deadline = time.monotonic() + options.start_timeout
        with attended(open_place(store, options, os.environ, deadline)) as place:
            group, channels, datagrams = connect_aggregators(options, place, deadline)
    core = Core(
        options.rank,
        options.world_size,
        channels,
        dedicated=options.world_size > 1,
        block=options.block,
        window=options.window,
        peer_timeout=options.peer_timeout,
        timeline=timeline_of(options.timeline, options.rank),
        **_slots_of(datagrams, options),
    )
    return _communicator(core, options, group)


def _slots_of(datagrams: Datagrams | None, options: Options) -> dict[str, Any]:
    if datagrams is None:
        return {}
    return {
        "datagrams": datagrams.sockets,
        "datagram_bytes": datagrams.size,
        "datagram_keys": datagrams.keys,
        "job": datagrams.job,
        "epoch": datagrams.epoch,
        "fixed_point": options.adds_in_fixed_point,
        "disturb": options.disturb,
        "worker": datagrams.worker,
        "in_kernel": datagrams.in_kernel,
        "rack": datagrams.rack,
        "greeting": datagrams.greeting,
    }


def open_place(
    store: object, options: Options, environment: Mapping[str, str], deadline: float
) -> Place:
    """The meeting place: in `store`, over it if it is an MPI communicator, or the default.

    `deadline` is on the monotonic clock. Raises ValueError if the environment names no place.
    """
    if (mpi := as_mpi(store)) is not None:
        return mpi_place(mpi, deadline)
    if isinstance(store, TcpStore):
        return tcp_place(store.address, store.secret, options, deadline)
    if store is None and (address := _own_address(environment)) is not None:
        return tcp_place(address, options.secret, options, deadline)
    found = named_store(options, environment) if store is None else cast(Store, store)
    return StorePlace(found, options, deadline)


def _own_address(environment: Mapping[str, str]) -> Address | None:
    """The address where rank 0 listens; None if the ranks meet in a store."""
    if environment.get("SPARSEWIRE_RENDEZVOUS"):
        return None
    host, port = launcher.master(environment)
    if not host or not port.isdigit():
        raise ValueError(
            "MASTER_ADDR and MASTER_PORT do not say where the ranks meet: start with torchrun, "
            "set both, set SPARSEWIRE_RENDEZVOUS=file:///directory, or pass store="
        )
    return None if launcher.has_agent(environment) else Address(host, int(port))


def named_store(options: Options, environment: Mapping[str, str]) -> Store:
    """The one store of a process. Its uses are counted, which keeps their records apart."""
    url = environment.get("SPARSEWIRE_RENDEZVOUS", "")
    where = (url, *launcher.master(environment))
    if where not in _named:
        _named[where] = (
            FileStore(_directory(url)) if url else _agent_store(options.start_timeout, environment)
        )
    return _named[where]


def _directory(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"SPARSEWIRE_RENDEZVOUS={url!r} is not of the form file:///directory")
    return unquote(parts.path)


def _agent_store(timeout: float, environment: Mapping[str, str]) -> Store:
    """Torchrun's own store, which holds the port and outlives restarts of the workers."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = launcher.master(environment)
    store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout))
    return PrefixStore(f"sparsewire/{launcher.attempt(environment)}", store)


def join() -> Communicator:
    """Connect with the other ranks of the launcher, or be the only one; raises as `init` does."""
    if launcher.is_launched(os.environ):
        return init(_mpi_world())
    return init(rank=0, world_size=1)


def _mpi_world() -> Intracomm | None:
    """MPI's communicator of all ranks under mpirun, which tells ranks but no address."""
    has_place = "SPARSEWIRE_RENDEZVOUS" in os.environ or launcher.master(os.environ).host
    if not launcher.is_by_mpi(os.environ) or has_place or find_spec("mpi4py") is None:
        return None
    from mpi4py import MPI

    return MPI.COMM_WORLD
