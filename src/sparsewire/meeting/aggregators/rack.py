"""A rack's aggregator below its server: datagrams are summed here, and connections go on to the
parent, so that failures and what does not go by datagrams are the parent's business."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from sparsewire._core import RackAggregator
from sparsewire.errors import Error
from sparsewire.meeting.aggregators.datagrams import connect_datagrams
from sparsewire.meeting.aggregators.kernel_plane import KernelPlane
from sparsewire.meeting.aggregators.relay import Relay
from sparsewire.meeting.contact.handshake import Hello
from sparsewire.meeting.contact.keys import WayKeys, datagram_keys, number_above
from sparsewire.options import Address

if TYPE_CHECKING:
    from sparsewire.xdp import XdpPlane

_log = logging.getLogger(__name__)


class Rack:
    """The jobs of a rack's workers, between them and the parent."""

    def __init__(
        self,
        parent: Address,
        workers: socket.socket,
        has_secret: bool,
        memory: int,
        job_memory: int,
        interface: str,
        tried: XdpPlane | None,
        disturb: str,
    ) -> None:
        """Take over `workers`, bound for their datagrams. Raises Error for no address.

        With an `interface`, the kernel adds up what comes in there; by the programs that have been
        `tried`, if they have.
        """
        try:
            above = connect_datagrams(parent)
        except (Error, OSError) as error:
            workers.close()
            raise Error(f"the parent {parent} cannot be reached: {error}") from None
        address = Address(*above.getpeername()[:2])
        self._core: RackAggregator | KernelPlane
        if interface:
            above.close()
            self._core = KernelPlane(interface, workers, address, tried)
        else:
            self._core = RackAggregator(
                memory=memory,
                job_memory=job_memory,
                workers=workers.detach(),
                parent=above.detach(),
                disturb=disturb,
            )
        self._relay = Relay(address, may_register=not has_secret)
        self._jobs: set[int] = set()
        self._refused = 0

    @property
    def hook(self) -> str:
        """The hook by which the kernel adds up, "xdp" or "tc"; "" if it does not."""
        return self._core.hook if isinstance(self._core, KernelPlane) else ""

    @property
    def is_ready(self) -> bool:
        """Workers may come in once the parent is reached."""
        return self._relay.reaches_parent

    def admit(self, job: int, world_size: int, epoch: int, keys: WayKeys) -> None:
        """The first worker makes room for its job: it tells the number of the parent."""

    def add_worker(self, connection: socket.socket, hello: Hello, key: bytes, epoch: int) -> None:
        """Take over a worker's connection, which has proved the key of a job of this epoch."""
        numbers = hello.peer, number_above(hello.peer)
        ways = [datagram_keys(key, epoch, number) for number in numbers]
        self._core.add_job(hello.job, hello.world_size, epoch, *ways)
        self._jobs.add(hello.job)
        self._relay.add(connection, hello, key)

    def serves(self, job: int, world_size: int, rank: int, lane: int) -> bool:
        """Whether this worker's connection is still here."""
        return self._relay.serves((job, rank, lane))

    def forget(self, job: int) -> None:
        """Forget a job, if it is here: its first worker may have failed to come."""
        if job in self._jobs:
            self._core.remove_job(job)
            self._jobs.discard(job)

    def look(self) -> None:
        """Warn if jobs have been refused since the last look."""
        refused = self._core.stats().get("jobs_refused", 0)
        if refused > self._refused:
            _log.warning("a job needs more memory than --memory and --job-memory leave")
        self._refused = refused

    def stats(self) -> dict[str, int]:
        return self._core.stats()

    def slots(self) -> dict[int, dict[str, int]]:
        """Counters of each job."""
        return self._core.slots()

    def close(self) -> None:
        self._relay.close()
        self._core.close()
