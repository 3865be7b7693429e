"""A dedicated aggregator: lets workers of many jobs in, and hands them to the native aggregator."""

from __future__ import annotations

import hmac
import logging
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from sparsewire.errors import Error
from sparsewire.meeting.aggregators.datagram_log import DatagramLog
from sparsewire.meeting.aggregators.observation import (
    JOBS_TOLD,
    AggregatorStatus,
    JobStatus,
    ObserverGuard,
    tell,
)
from sparsewire.meeting.aggregators.planes import Limits, Plane, open_plane
from sparsewire.meeting.contact.handshake import (
    KERNEL_JOBS_MAX,
    KERNEL_WORKERS_MAX,
    Guard,
    GuardByRole,
    Hello,
    Reason,
    Refused,
    Role,
    receive,
    worker_key,
)
from sparsewire.meeting.contact.keys import datagram_keys, is_above_racks
from sparsewire.meeting.contact.listener import Listener
from sparsewire.meeting.contact.sockets import bind, is_loopback, prepare
from sparsewire.options import LANES_MAX, TRANSPORTS, Address, check_secret

_log = logging.getLogger(__name__)

JOBS_MAX_DEFAULT = 64
RANKS_MAX_DEFAULT = 1024
MEMORY_DEFAULT = 2 << 30
JOB_MEMORY_DEFAULT = 1 << 30
WINDOW_MAX_DEFAULT = 1 << 20
# Ranks say nothing before all have found each other, and have 300 s for that.
GRACE_DEFAULT_S = 330.0
# The share of its time that the listener may work.
_BUSY_SHARE = 0.25
_POLL_S = 0.5
_PARENT_POLL_S = 0.1

Seat = tuple[int, int]
"""Rank and lane of one worker connection."""


@dataclass
class Job:
    """One job: what its workers must prove, and where its connections are."""

    key: bytes = field(repr=False)
    world_size: int
    epoch: int = 0
    number: int = 0
    """The number by which the workers know this aggregator."""
    workers: set[Seat] = field(default_factory=set)
    arriving: set[Seat] = field(default_factory=set)

    @property
    def here(self) -> int:
        """Ranks that have a connection."""
        return len({rank for rank, _ in self.workers})


class WorkerGuard(Guard):
    """Knows the jobs. Lets in each rank of a job once per lane.

    With a secret, workers prove that. Without, the first worker of a job registers the job's key,
    and all later ones prove it: the first caller is trusted. `admit` takes a job that is new, or
    raises Refused; `forget` hears at once of one that has ended. One `in_rack` lets no other rack's
    aggregator in; `in_kernel` there is no room for more than the programs take.
    """

    def __init__(
        self,
        secret: bytes,
        jobs_max: int,
        ranks_max: int,
        *,
        admit: Callable[[int, Job], None] = lambda number, job: None,
        forget: Callable[[int], None] = lambda number: None,
        in_rack: bool = False,
    ) -> None:
        self._secret = secret
        self._admit, self._forget = admit, forget
        self._in_rack = in_rack
        self.in_kernel = False
        self._jobs_max = jobs_max
        self._ranks_max = ranks_max
        self.jobs: dict[int, Job] = {}

    def key_for(self, hello: Hello) -> bytes | None:
        if self._in_rack and is_above_racks(hello.peer):
            raise Refused(Reason.NESTED)
        # How many workers a rack has, its first greeting tells.
        if self.in_kernel and not self._in_rack and hello.world_size > KERNEL_WORKERS_MAX:
            raise Refused(Reason.KERNEL_RANKS)
        if not (hello.rank < hello.world_size <= self._ranks_max and hello.lane < LANES_MAX):
            raise Refused(Reason.WRONG_RANK)
        if self._secret:
            return worker_key(self._secret, hello.job)
        job = self.jobs.get(hello.job)
        return None if job is None else job.key

    def enter(self, hello: Hello, key: bytes) -> None:
        job = self.jobs.get(hello.job)
        if job is None:
            job = self._new_job(hello, key)
        if not hmac.compare_digest(job.key, key):
            raise Refused(Reason.WRONG_PROOF)
        if (job.world_size, job.number) != (hello.world_size, hello.peer):
            raise Refused(Reason.WRONG_RANK)
        seat = (hello.rank, hello.lane)
        if seat in job.workers or seat in job.arriving:
            raise Refused(Reason.DUPLICATE)
        job.arriving.add(seat)

    def _new_job(self, hello: Hello, key: bytes) -> Job:
        if len(self.jobs) >= self._jobs_max:
            raise Refused(Reason.FULL)
        if self.in_kernel and len(self.jobs) >= KERNEL_JOBS_MAX:
            raise Refused(Reason.KERNEL_FULL)
        job = Job(key, hello.world_size, hello.epoch, hello.peer)
        self._admit(hello.job, job)
        self.jobs[hello.job] = job
        return job

    def leave(self, hello: Hello) -> None:
        self.jobs[hello.job].arriving.discard((hello.rank, hello.lane))
        self._forget_empty()

    def seat(self, hello: Hello) -> None:
        job = self.jobs[hello.job]
        job.arriving.discard((hello.rank, hello.lane))
        job.workers.add((hello.rank, hello.lane))

    def forget_departed(self, plane: Plane) -> None:
        """Forget workers whose connections the native aggregator has closed, then empty jobs."""
        for number, job in self.jobs.items():
            job.workers = {
                seat for seat in job.workers if plane.serves(number, job.world_size, *seat)
            }
        self._forget_empty()

    def _forget_empty(self) -> None:
        for number, job in list(self.jobs.items()):
            if not job.workers and not job.arriving:
                del self.jobs[number]
                self._forget(number)
                _log.info("job %016x ended", number)


class AggregatorServer:
    """Serves workers on one address until it is closed, several jobs at a time."""

    def __init__(
        self,
        address: Address,
        *,
        secret: bytes = b"",
        jobs_max: int = JOBS_MAX_DEFAULT,
        ranks_max: int = RANKS_MAX_DEFAULT,
        memory: int = MEMORY_DEFAULT,
        job_memory: int = JOB_MEMORY_DEFAULT,
        window_max: int = WINDOW_MAX_DEFAULT,
        grace: float = GRACE_DEFAULT_S,
        transport: str = TRANSPORTS[0],
        interface: str = "",
        parent: Address | None = None,
        disturb: str = "",
    ) -> None:
        """Listen at `address`, port 0 for a free one. Raises Error where that is not possible.

        In bytes: all jobs together may need `memory`, one of them `job_memory`, and a worker may
        ask for a window of `window_max`. One that says nothing for `grace` seconds is let go.

        With `transport` "udp" it also adds up what comes by datagrams to the same port; with "xdp"
        the kernel does, for what comes in by `interface`. With "auto" the kernel does where it can,
        and where it cannot, this process. With one of them and a `parent`, the
        aggregator is that of a rack, and takes part there as one worker. `disturb` is what is to
        happen to datagrams, for tests: see `Options`.
        """
        self._guard = WorkerGuard(
            *(check_secret(secret), jobs_max, ranks_max),
            admit=self._admit,
            forget=lambda number: self._plane.forget(number),
            in_rack=parent is not None,
        )
        self._started = time.monotonic()
        doors = GuardByRole({Role.WORKER: self._guard, Role.OBSERVER: ObserverGuard(secret)})
        with ExitStack() as opened:
            self._listener = Listener(partial(receive, doors), bind(*address))
            opened.callback(self._listener.close)
            self._plane, self._way_in = open_plane(
                *(self.address, transport, interface, parent),
                Limits(memory, job_memory, window_max, grace),
                has_secret=bool(secret),
                disturb=disturb,
            )
            opened.pop_all()
        self._guard.in_kernel = self._way_in[0] == "xdp"
        if not secret and not is_loopback(self.address.host):
            _log.warning(
                "listening on %s without a secret: whoever reaches it can start a job here. "
                "Set SPARSEWIRE_SECRET, here and for the workers",
                self.address,
            )

    @property
    def address(self) -> Address:
        return self._listener.address

    @property
    def jobs(self) -> int:
        """Number of jobs that have workers here."""
        return len(self._guard.jobs)

    def serve(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let workers in until `until()`, which is asked about twice a second, is true."""
        next_look, log = 0.0, DatagramLog()
        while not until():
            started = time.thread_time()
            for connection, hello in self._arrivals():
                if hello.role is Role.OBSERVER:
                    tell(connection, self.status())
                else:
                    self._add(connection, hello)
            if time.monotonic() >= next_look:
                self._guard.forget_departed(self._plane)
                self._plane.look()
                log.look(self.stats())
                next_look = time.monotonic() + _POLL_S
            _rest(time.thread_time() - started)

    def _arrivals(self) -> list[tuple[socket.socket, Hello]]:
        """Connections that have proved themselves; all wait until the plane is ready."""
        if not self._plane.is_ready:
            time.sleep(_PARENT_POLL_S)
            return []
        return self._listener.poll(_POLL_S)

    def stats(self) -> dict[str, int]:
        """Counters of all jobs since the start.

        If the kernel takes the datagrams, only those of no known job are counted here.
        """
        return self._plane.stats()

    def status(self) -> AggregatorStatus:
        """The document for an observer. Call it from the thread that serves."""
        slots = self._plane.slots()
        jobs = [
            JobStatus(f"{number:016x}", job.epoch, job.world_size, job.here, slots.get(number, {}))
            for number, job in self._guard.jobs.items()
        ]
        return AggregatorStatus(
            str(self.address),
            *self._way_in,
            time.monotonic() - self._started,
            self.stats(),
            tuple(jobs[:JOBS_TOLD]),
            len(jobs[JOBS_TOLD:]),
            self._plane.hook,
        )

    def close(self) -> None:
        self._listener.close()
        self._plane.close()

    def _admit(self, number: int, job: Job) -> None:
        """Before its first worker is let in, so that this one hears why it cannot be."""
        keys = datagram_keys(job.key, job.epoch, job.number)
        try:
            self._plane.admit(number, job.world_size, job.epoch, keys)
        except (Error, OSError) as error:
            _log.error("job %016x cannot be served: %s", number, error)
            raise Refused(Reason.UNSERVED) from error

    def _add(self, connection: socket.socket, hello: Hello) -> None:
        job = self._guard.jobs[hello.job]
        try:
            prepare(connection)
            self._plane.add_worker(connection, hello, job.key, job.epoch)
        except (RuntimeError, ValueError, MemoryError, OSError):
            # The native aggregator has closed a detached socket; the other jobs go on.
            connection.close()
            _log.exception("job %016x: rank %d cannot be served", hello.job, hello.rank)
            self._guard.leave(hello)
            return
        self._guard.seat(hello)
        _log.info("job %016x: rank %d, lane %d is here", hello.job, hello.rank, hello.lane)


def _rest(worked: float) -> None:
    """Keep the work for strangers below its share of a processor."""
    time.sleep(min(worked * (1 / _BUSY_SHARE - 1), _POLL_S))
