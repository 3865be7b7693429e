"""An aggregator's data plane in the kernel, as its server sees it: jobs come and go, and workers
greet by datagrams, which the kernel hands up."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparsewire._core import datagram_job, greeting, read_greeting
from sparsewire.errors import Error
from sparsewire.meeting.datagrams import CONTRIBUTION, HELLO, WELCOME
from sparsewire.options import Address

if TYPE_CHECKING:
    from sparsewire.xdp import XdpPlane

_log = logging.getLogger(__name__)

_POLL_S = 0.5
_DATAGRAM_BYTES = 1 << 16
# Datagrams before it rests, as many as the system keeps meanwhile.
_AT_ONCE = 100
# Of its time, what answering greetings may take, and copies of them.
_BUSY_SHARE = 0.1
_MOST_REST_S = 0.5
# As long as a contribution might be, so that the programs read the tag of its answer.
_READABLE_BYTES = 48 + 9 * 64
_ADVICE = (
    "they come in elsewhere, or several as one; against that, turn tx-udp-segmentation off at the "
    "other end of its cable, as `ethtool -K` does"
)

Party = tuple[int, int, int, int, int]
"""Workers here, ranks of the job, which rack, racks, bytes of the largest datagram."""


@dataclass
class _Job:
    """What greetings of a job must say, and how far its own to the parent have come."""

    key: bytes = field(repr=False)
    epoch: int
    world_size: int
    party: Party | None = None
    """As the first greeting of a rack's workers said, which all others must repeat."""
    way_up: int = 0
    """Bytes of the longest greeting that the parent has answered."""


class KernelPlane:
    """The jobs that the kernel adds up for, and a thread that answers greetings."""

    def __init__(
        self,
        interface: str,
        receiver: socket.socket,
        parent: Address | None = None,
        tried: XdpPlane | None = None,
    ) -> None:
        """Load the programs at `interface`; takes over `receiver`. Raises Error.

        With a `parent`, numeric, the jobs' sums are those of a rack, and go on to there. Programs
        that have been `tried` there, for this receiver's address, are taken over instead.
        """
        from sparsewire.xdp import XdpPlane  # Only here: it loads libbpf.

        self._receiver, self._interface = receiver, interface
        try:
            self._parent = parent and _as_seen_by(receiver, parent)
            host, port = receiver.getsockname()[:2]
            self._plane: XdpPlane = tried or XdpPlane(interface, port, host)
        except BaseException:
            receiver.close()
            raise
        try:
            self._plane.check_way_out()
        except Error as error:  # It may be mended before workers come.
            _log.warning("%s", error)
        self._jobs: dict[int, _Job] = {}
        self._served = 0
        self._complaints: set[tuple[int, str]] = set()
        self._mutex = threading.Lock()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="greetings", daemon=True)
        self._thread.start()

    @property
    def hook(self) -> str:
        """Where the kernel adds up: "xdp" or "tc"."""
        return self._plane.hook

    def add_job(self, job: int, world_size: int, epoch: int, key: bytes) -> None:
        """Make room for a job, unless it is there. Raises Error where there is none.

        How many workers a rack has is known, and room made, with the first greeting.
        """
        with self._mutex:
            if job in self._jobs:
                return
            if not self._parent:
                self._plane.add_job(job, epoch, world_size, key)
            self._jobs[job] = _Job(key, epoch, world_size)
            self._served += 1

    def keep(self, jobs: Mapping[int, object]) -> None:
        """Forget all jobs but these."""
        with self._mutex:
            gone = self._jobs.keys() - jobs.keys()
        for job in gone:
            self.remove_job(job)

    def remove_job(self, job: int) -> None:
        """Forget a job that is here."""
        with self._mutex:
            del self._jobs[job]
            if self._plane.has_job(job):
                self._plane.remove_job(job)
            self._complaints = {each for each in self._complaints if each[0] != job}

    def slots(self) -> dict[int, dict[str, int]]:
        """Counters of each job."""
        with self._mutex:
            return {job: self._plane.stats(job) for job in self._jobs if self._plane.has_job(job)}

    def stats(self) -> dict[str, int]:
        """Of all jobs since the start; strange datagrams are contributions of no known job."""
        with self._mutex:
            return {
                "jobs": len(self._jobs),
                "jobs_served": self._served,
                "datagrams_strange": self._plane.strays(),
            }

    def close(self) -> None:
        self._stops.set()
        self._thread.join()
        self._receiver.close()
        self._plane.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._receiver, selectors.EVENT_READ)
            while not self._stops.is_set():
                if selector.select(_POLL_S):
                    started = time.thread_time()
                    with contextlib.suppress(OSError):  # Who greets will do so again.
                        for _ in range(_AT_ONCE):
                            self._answer(*self._receiver.recvfrom(_DATAGRAM_BYTES))
                    _rest(time.thread_time() - started)

    def _answer(self, data: bytes, sender: tuple[str, int]) -> None:
        """Hear a greeting out; what is none gets no answer."""
        number = datagram_job(data)
        with self._mutex:
            job = self._jobs.get(number) if number is not None else None
            if number is not None and job and data[1] == CONTRIBUTION:
                return self._complain(number, f"contributions pass by {self._interface}: {_ADVICE}")
            read = read_greeting(job.key, data) if job else None
            if number is None or not job or not read or read[1:3] != (number, job.epoch):
                return
            kind, worker, party = read[0], read[3], read[5]
            if kind == HELLO:
                try:
                    self._greet(number, job, worker, party, len(data), Address(*sender[:2]))
                except Error as error:
                    self._complain(number, f"rank {worker} is not taken: {error}")
            elif sender[:2] == self._parent and job.party and worker == job.party[2]:
                job.way_up = max(job.way_up, len(data))

    def _greet(
        self, number: int, job: _Job, worker: int, party: Party, size: int, sender: Address
    ) -> None:
        """Bind the sender to its rank, and greet back, once the parent has. Raises Error."""
        self._check_party(number, job, party)
        self._plane.bind_worker(number, worker, *sender)
        if self._parent and not (size <= job.way_up and self._plane.knows_parent(number)):
            return self._greet_parent(number, job, self._parent, size)
        words = greeting(
            job.key, WELCOME, number, job.epoch, worker, size, party, adds_only_integers=True
        )
        self._receiver.sendto(words, sender)

    def _check_party(self, number: int, job: _Job, party: Party) -> None:
        """Raise Error for a greeting of others than this job's workers."""
        workers, world_size, rack, racks, _ = party
        if not self._parent:
            if party[:4] != (job.world_size, job.world_size, 0, 1):
                raise Error("the aggregators of its racks need `--parent`, and this one has none")
            return
        if party != (job.party or party) or world_size != job.world_size:
            raise Error("another one of its rack has said otherwise how many they are")
        if not job.party:
            upstream = (*self._parent, rack, racks)
            self._plane.add_job(number, job.epoch, workers, job.key, upstream)
            job.party = party

    def _greet_parent(self, number: int, job: _Job, parent: Address, size: int) -> None:
        """From where the programs send, so that the parent knows them, and they the way there."""
        assert job.party
        _, world_size, rack, racks, most = job.party
        above = racks, world_size, 0, 1, most
        for length in {size, _READABLE_BYTES}:
            words = greeting(job.key, HELLO, number, job.epoch, rack, length, above)
            self._receiver.sendto(words, parent)

    def _complain(self, job: int, text: str) -> None:
        """Say so once: whoever copies greetings shall not fill a disk."""
        if (job, text) not in self._complaints:
            self._complaints.add((job, text))
            _log.warning("job %016x: %s", job, text)


def _as_seen_by(receiver: socket.socket, address: Address) -> Address:
    """As it stands for a sender there. Raises Error where none can be."""
    try:
        found = socket.getaddrinfo(
            *address, receiver.family, socket.SOCK_DGRAM, flags=socket.AI_V4MAPPED
        )
    except OSError as error:
        raise Error(f"no datagrams to {address} from where this one listens: {error}") from None
    host, port, *_ = found[0][4]
    return Address(str(host), int(port))


def _rest(worked: float) -> None:
    """Keep strangers, who cost work here, from taking more of a processor than their share."""
    time.sleep(min(worked * (1 / _BUSY_SHARE - 1), _MOST_REST_S))
