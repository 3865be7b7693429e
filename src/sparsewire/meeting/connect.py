"""Makes communicators: finds the settings, meets the other ranks, starts the engine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from sparsewire._core import Communicator as Core
from sparsewire.communicator import Communicator
from sparsewire.meeting.link_probe import measure_link
from sparsewire.meeting.mpi_place import as_mpi, mpi_ranks
from sparsewire.meeting.rendezvous import open_place
from sparsewire.meeting.startup import join
from sparsewire.meeting.store_place import Store
from sparsewire.options import Options, resolve

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


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
    them for connecting. `lanes` is the number of progress threads, alike on all ranks.
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
    # A single rank has nobody to meet and nothing to send, not even to an aggregator.
    channels = [[-1]] * options.lanes
    if options.world_size > 1:
        deadline = time.monotonic() + options.start_timeout
        with closing(open_place(store, options, os.environ, deadline)) as place:
            channels = join(options, place, os.environ, deadline)
    core = Core(
        options.rank,
        options.world_size,
        channels,
        dedicated=bool(options.aggregators) and options.world_size > 1,
        block=options.block,
        window=options.window,
        peer_timeout=options.peer_timeout,
    )
    communicator = Communicator(core, options)
    try:
        _learn_link(communicator, core, options)
    except BaseException:
        communicator.close()
        raise
    return communicator


def _learn_link(communicator: Communicator, core: Core, options: Options) -> None:
    """Give the engine the link's figures: those of the settings, else measured ones."""
    # Through dedicated aggregators there is only one way to go.
    if options.world_size == 1 or options.aggregators:
        return
    core.set_link(*(options.link or measure_link(communicator, options.start_timeout)))
    communicator.start_counting()
