"""Planes add up below an aggregator's server: in this process, in the kernel, or in a rack."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple

from sparsewire._core import Aggregator as Core
from sparsewire.errors import Error
from sparsewire.meeting.aggregators.datagrams import bind_datagrams
from sparsewire.meeting.aggregators.kernel_plane import KernelPlane
from sparsewire.meeting.aggregators.rack import Rack
from sparsewire.meeting.contact.handshake import Hello
from sparsewire.meeting.contact.keys import WayKeys, datagram_keys
from sparsewire.options import AUTO, Address

if TYPE_CHECKING:
    from sparsewire.xdp import XdpPlane

_log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """Bytes of all jobs, of one job, and of a worker's window; seconds until a hello."""

    memory: int
    job_memory: int
    window: int
    grace: float


class ProcessPlane:
    """This process adds up what comes by connections, and by `datagrams`, a socket, if any."""

    hook = ""
    """The hook by which the kernel adds up, "xdp" or "tc"; "" where it does not."""
    is_ready = True
    """Whether workers may come in."""

    def __init__(
        self, limits: Limits, datagrams: socket.socket | None = None, disturb: str = ""
    ) -> None:
        descriptor = datagrams.detach() if datagrams else -1
        self._core = Core(**limits._asdict(), datagrams=descriptor, disturb=disturb)
        self.serves = self._core.serves
        self.slots = self._core.slots

    def admit(self, job: int, world_size: int, epoch: int, keys: WayKeys) -> None:
        """Make room for a job before its first worker comes in. Raises Error or OSError."""

    def forget(self, job: int) -> None:
        """Forget a job at its end: the next job of this number may have another key."""

    def add_worker(self, connection: socket.socket, hello: Hello, key: bytes, epoch: int) -> None:
        """Take over a worker's connection, which has proved the key of a job of this epoch."""
        keys = datagram_keys(key, epoch, hello.peer)
        place = hello.job, hello.world_size, hello.rank, hello.lane
        self._core.add_worker(*place, connection.detach(), epoch, keys)

    def look(self) -> None:
        """Log what an operator should know of the time since the last look."""

    def stats(self) -> dict[str, int]:
        """Counters of all jobs since the start."""
        return self._core.stats()

    def close(self) -> None:
        self._core.close()


class ProcessAndKernelPlane(ProcessPlane):
    """This process adds up what comes by connections; the kernel adds up datagrams."""

    def __init__(self, limits: Limits, kernel: KernelPlane) -> None:
        super().__init__(limits)
        self._kernel = kernel
        self.hook = kernel.hook
        self.slots = kernel.slots

    def admit(self, job: int, world_size: int, epoch: int, keys: WayKeys) -> None:
        self._kernel.add_job(job, world_size, epoch, keys)

    def forget(self, job: int) -> None:
        self._kernel.remove_job(job)

    def stats(self) -> dict[str, int]:
        """Counters of all jobs. The kernel takes all datagrams but those of no known job."""
        stats = {n: count for n, count in super().stats().items() if not n.startswith("datagram")}
        return stats | {"datagrams_strange": self._kernel.stats()["datagrams_strange"]}

    def close(self) -> None:
        self._kernel.close()
        super().close()


Plane = ProcessPlane | Rack
"""Serves jobs by number. The server admits a job, adds its workers, and forgets it."""


def open_plane(
    address: Address,
    transport: str,
    interface: str,
    parent: Address | None,
    limits: Limits,
    *,
    has_secret: bool,
    disturb: str,
) -> tuple[Plane, tuple[str, str]]:
    """The plane of a server at `address`, with the transport and the interface that it uses.

    The transport "auto" becomes "xdp" where the kernel can add up, else "udp". Raises Error.
    """
    with ExitStack() as opened:
        tried = _tried(interface, address) if transport == AUTO else None
        if tried:
            opened.callback(tried.close)
        if transport == AUTO:
            transport, interface = ("xdp", interface) if tried else ("udp", "")
        plane: Plane
        if parent:
            memory = limits.memory, limits.job_memory
            plane = Rack(
                *(parent, bind_datagrams(address), has_secret, *memory),
                *(interface, tried, disturb),
            )
        elif transport == "xdp":
            kernel = KernelPlane(interface, bind_datagrams(address), tried=tried)
            opened.callback(kernel.close)
            plane = ProcessAndKernelPlane(limits, kernel)
        else:
            by_udp = transport == "udp"
            plane = ProcessPlane(limits, bind_datagrams(address) if by_udp else None, disturb)
        opened.pop_all()
    return plane, (transport, interface)


def _tried(interface: str, address: Address) -> XdpPlane | None:
    """The programs at the interface, if they can be run there, and are heard."""
    from sparsewire.xdp import XdpPlane  # Only here: it loads libbpf.

    with ExitStack() as stack:
        try:
            plane = stack.enter_context(closing(XdpPlane(interface, address.port, address.host)))
            plane.check_way_out()
        except (Error, OSError) as error:
            _log.warning("the kernel cannot add up here, so this process does, by udp: %s", error)
            return None
        stack.pop_all()
        return plane
