"""An aggregator's data plane in the kernel, as its server sees it: jobs come and go, and workers
greet by datagrams, which the kernel hands up."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparsewire._core import datagram_job, greeting, read_greeting
from sparsewire.errors import Error
from sparsewire.meeting.aggregators.datagrams import KERNEL_DATAGRAM
from sparsewire.meeting.contact.greetings import HELLO, NOTED, WELCOME, bytes_of, readable
from sparsewire.meeting.contact.keys import WayKeys
from sparsewire.options import DATAGRAM_MAX, Address

if TYPE_CHECKING:
    from sparsewire.xdp import XdpPlane

_log = logging.getLogger(__name__)

_POLL_S = 0.5
_DATAGRAM_BYTES = 1 << 16
# Datagrams before it rests, as many as the system keeps meanwhile.
_AT_ONCE = 100
# The share of the thread's time for greetings, which strangers may copy.
_BUSY_SHARE = 0.1
_MOST_REST_S = 0.5
# How often a rack greets its parent by itself, and how long a greeting that is.
_REMINDER_S = 1.0
_REMINDER_BYTES = bytes_of(16)
# The way to the parent counts as cut after so many unanswered greetings in a row.
_MOST_UNANSWERED = 3
_CONTRIBUTION = 1
# Seconds after a worker's first greeting in which all that was on its way has come.
_SETTLED_S = 1.0
_ADVICE = (
    "they come in elsewhere, or several as one; against that, turn tx-udp-segmentation off at the "
    "other end of its cable, as `ethtool -K` does"
)

Party = tuple[int, int, int, int, int, int]
"""Workers here, ranks of the job, which rack, racks, bytes of the largest datagram, flows of each
worker."""


@dataclass
class _Job:
    """The terms that a job's greetings must state, and the progress of its own to the parent."""

    keys: WayKeys
    above: WayKeys | None
    """Between the parent and its workers."""
    epoch: int
    world_size: int
    party: Party | None = None
    """The terms of the first greeting, which all others must repeat."""
    said: int = 0
    """The number of the last greeting to the parent,"""
    answered: int = 0
    """and of the last one that it has answered."""
    unanswered: int = 0
    """Reminders since then."""
    rejected: int = 0
    """Greetings that are not taken."""
    noted: dict[int, float] = field(default_factory=dict)
    """When the programs could answer each worker for the first time."""


@dataclass(frozen=True)
class _Hello:
    """A worker's greeting, as read."""

    job: int
    worker: int
    flow: int
    party: Party
    size: int
    """Bytes of the hello itself,"""
    answer: int
    """and of the answer that it asks of the programs."""
    number: int

    @property
    def is_fit(self) -> bool:
        """Whether it is no longer than datagrams are, and asks for no more than programs send."""
        return self.size <= DATAGRAM_MAX and self.answer <= KERNEL_DATAGRAM

    @property
    def is_for_programs(self) -> bool:
        return self.answer > bytes_of(0)

    @property
    def needs(self) -> int:
        """Bytes of what must pass to the parent first."""
        return min(readable(max(self.size, self.answer)), KERNEL_DATAGRAM)


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
        self._reminds = 0.0
        """When the parent is greeted again."""
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="greetings", daemon=True)
        self._thread.start()

    @property
    def hook(self) -> str:
        """The hook by which the kernel adds up: "xdp" or "tc"."""
        return self._plane.hook

    def add_job(
        self, job: int, world_size: int, epoch: int, keys: WayKeys, above: WayKeys | None = None
    ) -> None:
        """Make room for a job, unless it is there. Raises Error where there is none.

        How many workers a rack has is known, and room made, with the first greeting; `above` are
        the keys of the parent and its workers.
        """
        with self._mutex:
            if job in self._jobs:
                return
            if not self._parent:
                self._plane.add_job(job, epoch, world_size, keys)
            self._jobs[job] = _Job(keys, above, epoch, world_size)
            self._served += 1

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
            here = {job: each for job, each in self._jobs.items() if self._plane.has_job(job)}
            counted = {job: self._plane.stats(job) for job in here}
            for job, counts in counted.items():
                counts["rejected"] += here[job].rejected
            return counted

    def stats(self) -> dict[str, int]:
        """Counters of all jobs since the start. Strange datagrams are of no known job."""
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
                    with contextlib.suppress(OSError):  # The worker will greet again.
                        for _ in range(_AT_ONCE):
                            self._hear(*self._receiver.recvfrom(_DATAGRAM_BYTES))
                    _rest(time.thread_time() - started)
                if self._parent and time.monotonic() >= self._reminds:
                    self._remind(self._parent)
                    self._reminds = time.monotonic() + _REMINDER_S

    def _remind(self, parent: Address) -> None:
        """Greet the parent for each job: this aggregator's address may have changed on the way.

        The programs answer the workers by themselves, so nothing else would tell the parent.
        """
        with self._mutex:
            for number, job in self._jobs.items():
                with contextlib.suppress(OSError):  # It may be mended by the next time.
                    if job.party:
                        self._watch(number, job, parent)
                        size = max(_REMINDER_BYTES, self._plane.way_up(number))
                        self._greet_parent(number, job, parent, size)

    def _watch(self, number: int, job: _Job, parent: Address) -> None:
        """Stop answering workers once the parent answers no more, so that they notice."""
        job.unanswered += 1
        if job.unanswered <= _MOST_UNANSWERED:
            return
        self._plane.forget_way_up(number)
        self._complain(
            number,
            f"the parent at {parent} answers no datagrams: look at the firewall (UDP, both ways), "
            "the route and the MTU",
        )

    def _hear(self, data: bytes, sender: tuple[str, int]) -> None:
        """Take a datagram if it is for a job here."""
        number = datagram_job(data)
        with self._mutex:
            job = self._jobs.get(number) if number is not None else None
            if number is None or not job:
                return
            if data[1] == _CONTRIBUTION:
                return self._complain(number, f"contributions pass by {self._interface}: {_ADVICE}")
            if data[1] == WELCOME:
                return _hear_parent(data, number, job)
            hello = _hello_in(data, number, job)
            if hello:
                self._take(job, hello, Address(*sender[:2]))

    def _take(self, job: _Job, hello: _Hello, sender: Address) -> None:
        """Answer a hello. If that fails, greetings of other workers are still answered."""
        try:
            if not hello.is_fit:
                raise Error("its greeting is longer than datagrams are, or asks for such an answer")
            self._greet(job, hello, sender)
        except Exception as error:
            job.rejected += 1
            self._complain(hello.job, f"rank {hello.worker} is not taken: {error}")

    def _greet(self, job: _Job, hello: _Hello, sender: Address) -> None:
        """Bind the sender to its rank, so that the programs answer its next hello, and tell it so.

        In a rack the parent has to answer first. Raises Error.
        """
        self._check_party(hello.job, job, hello.party)
        self._plane.bind_worker(hello.job, hello.worker, *sender, hello.number, hello.flow)
        if self._parent and hello.needs > self._plane.way_up(hello.job):
            return self._greet_parent(hello.job, job, self._parent, hello.needs)
        self._check_way_in(job, hello)
        words = greeting(
            job.keys.down,
            NOTED,
            *(hello.job, job.epoch, hello.worker, hello.size, hello.party),
            adds_only_integers=True,
            number=hello.number,
            flow=hello.flow,
        )
        self._receiver.sendto(words, sender)

    def _check_way_in(self, job: _Job, hello: _Hello) -> None:
        """Complain if the programs have not seen a hello that they would have answered."""
        now = time.monotonic()
        is_settled = now - job.noted.setdefault(hello.worker, now) >= _SETTLED_S
        is_unseen = hello.number > self._plane.greeted(hello.job, hello.worker)
        if is_settled and hello.is_for_programs and is_unseen:
            self._complain(
                hello.job,
                f"greetings pass by {self._interface}, and so will contributions: they come in by "
                "another interface, which `--interface` has to name",
            )

    def _check_party(self, number: int, job: _Job, party: Party) -> None:
        """Raise Error if a greeting's terms are not those of the job."""
        if party != (job.party or party) or party[1] != job.world_size:
            raise Error("another one has said otherwise how many they are, or their flows")
        if not job.party:
            self._set_up(number, job, party)
            job.party = party

    def _set_up(self, number: int, job: _Job, party: Party) -> None:
        """Tell the programs what the first greeting of a job says. Raises Error."""
        workers, world_size, rack, racks, _, flows = party
        if self._parent:
            assert job.above
            upstream = (*self._parent, rack, racks, job.above)
            self._plane.add_job(number, job.epoch, workers, job.keys, upstream)
        elif party[:4] != (world_size, world_size, 0, 1):
            raise Error("the aggregators of its racks need `--parent`, and this one has none")
        self._plane.set_flows(number, flows)

    def _greet_parent(self, number: int, job: _Job, parent: Address, size: int) -> None:
        """Greet the parent from the programs' address, so that each side learns the other's."""
        assert job.party
        assert job.above
        _, world_size, rack, racks, most, _ = job.party
        above = racks, world_size, 0, 1, most, 1
        job.said += 1
        words = greeting(job.above.up, HELLO, number, job.epoch, rack, size, above, number=job.said)
        self._receiver.sendto(words, parent)

    def _complain(self, job: int, text: str) -> None:
        """Log a text once: a sender of copied greetings must not fill a disk."""
        if (job, text) not in self._complaints:
            self._complaints.add((job, text))
            _log.warning("job %016x: %s", job, text)


def _hear_parent(data: bytes, number: int, job: _Job) -> None:
    """Note an answer of the parent, if it is new and the parent's own."""
    read = read_greeting(job.above.down, data) if job.above else None
    if read and read[:3] == (WELCOME, number, job.epoch) and job.answered < read[6] <= job.said:
        job.answered, job.unanswered = read[6], 0


def _hello_in(data: bytes, number: int, job: _Job) -> _Hello | None:
    """The hello in a datagram; None if it is no hello of the job under its key."""
    read = read_greeting(job.keys.up, data)
    if not read or read[:3] != (HELLO, number, job.epoch):
        return None
    worker, party, again, block, flow = read[3], *read[5:]
    return _Hello(number, worker, flow, party, len(data), bytes_of(block), again)


def _as_seen_by(receiver: socket.socket, address: Address) -> Address:
    """The address as a sender there sees it. Raises Error if datagrams cannot reach it."""
    try:
        found = socket.getaddrinfo(
            *address, receiver.family, socket.SOCK_DGRAM, flags=socket.AI_V4MAPPED
        )
    except OSError as error:
        raise Error(f"no datagrams to {address} from where this one listens: {error}") from None
    host, port, *_ = found[0][4]
    return Address(str(host), int(port))


def _rest(worked: float) -> None:
    """Keep the work for strangers below its share of a processor."""
    time.sleep(min(worked * (1 / _BUSY_SHARE - 1), _MOST_REST_S))
