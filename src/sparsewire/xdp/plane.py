"""The aggregator in the kernel, as its process sees it: jobs come and go, workers are bound."""

from __future__ import annotations

import ctypes
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from ctypes import c_uint32, c_uint64
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from sparsewire.errors import Error
from sparsewire.lifetime import disown_in_child
from sparsewire.xdp import libbpf
from sparsewire.xdp.greeter import Greeter
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.loader import NoXdpError, Programs, interface_index, object_path
from sparsewire.xdp.maps import (
    FLOWS_MAX,
    JOBS_MAX,
    MAPPED,
    SLOTS,
    WORKERS_MAX,
    Copies,
    Counters,
    Job,
    Map,
    Parent,
    Slot,
    Worker,
    packed,
    place_of,
)
from sparsewire.xdp.trial import is_heard
from sparsewire.xdp.vlan import stripped_vlans

_log = logging.getLogger(__name__)

Keys = tuple[bytes, bytes]
"""Keys of datagrams from workers to their aggregator, and back; 32 bytes each."""

Upstream = tuple[str, int, int, int, Keys]
"""Host and port of the aggregator above; which of its workers this one is, of how many; their keys.
"""


@dataclass(frozen=True)
class _Seat:
    """A job in the maps: its place, its workers, the flows of each, and their greetings here."""

    place: int
    workers: int
    flows: int = 1
    greeters: defaultdict[int, Greeter] = field(default_factory=lambda: defaultdict(Greeter))


class XdpPlane:
    """The programs at one interface, and the jobs that they add up for.

    All datagrams that are not of its jobs still reach the socket at the same port.
    Not safe to call from several threads at once.
    """

    def __init__(self, interface: str, port: int, host: str = "") -> None:
        """Load the programs, and attach them. Raises Error, which says what is missing.

        They take what comes to this address; without a `host`, or with one that stands for any,
        what comes to the port by the interface, for any job.

        Afterwards `hook` says where they are: "xdp", in the driver, or "tc", behind it.
        """
        self._name, self._interface = interface, interface_index(interface)
        for vlan in stripped_vlans(interface):
            _log.warning(
                "%s takes the tags of %s off before the programs see them, and answers would go "
                "without: turn that off by `ethtool -K %s rxvlan off`",
                *(interface, vlan, interface),
            )
        self.programs = Programs(object_path(), _constants(port, host))
        disown_in_child(self, "close")
        self._seats: dict[int, _Seat] = {}
        try:
            self._open_maps()
            self.hook = self._attach(interface)
        except BaseException:
            self.close()
            raise

    def add_job(
        self, job: int, epoch: int, workers: int, keys: Keys, upstream: Upstream | None = None
    ) -> None:
        """Take contributions of a job from now on.

        With `upstream` they are those of a rack: its sums go on to there, and what comes of them is
        the result. Raises Error where it has too many workers, or there are too many jobs.
        """
        if not 1 <= workers <= WORKERS_MAX:
            raise Error(
                f"the aggregator in the kernel takes 1 to {WORKERS_MAX} workers a job, and not "
                f"{workers}"
            )
        if job in self._seats:
            raise Error(f"the aggregator in the kernel has job {job:016x} already")
        place = self._free_place()
        self._jobs[place] = Job.of(epoch, workers, keys, upstream and upstream[4])
        self._parents[place] = Parent.at_root(*upstream[:4]) if upstream else Parent()
        self._make_copies(place, workers)
        self._places[job] = c_uint32(place)
        self._seats[job] = _Seat(place, workers)

    def set_flows(self, job: int, flows: int) -> None:
        """Expect so many flows of each worker of a job, and not one; before one is bound.

        Raises Error where there are too many.
        """
        if not 1 <= flows <= FLOWS_MAX:
            raise Error(
                f"the aggregator in the kernel takes 1 to {FLOWS_MAX} flows of a worker, and not "
                f"{flows}"
            )
        seat = self._seats[job] = replace(self._seats[job], flows=flows)
        said = self._jobs[seat.place]
        said.flows = flows
        self._jobs[seat.place] = said

    def bind_worker(
        self, job: int, worker: int, host: str, port: int, number: int = 1, flow: int = 0
    ) -> None:
        """Take what a worker contributes by a flow from this address only. Raises Error.

        It moves with a greeting whose number is larger than that of any before, whether the
        programs have heard that or the process: a sender of a copy cannot take its place.
        """
        seat = self._seats.get(job)
        if seat is None or not (0 <= worker < seat.workers and 0 <= flow < seat.flows):
            raise Error(
                f"the aggregator in the kernel has no job {job:016x} with worker {worker} and its "
                f"flow {flow}"
            )
        place = place_of(seat.place, worker, flow)
        bound, known, greeter = Worker.at(host, port), self._workers[place], seat.greeters[place]
        # Bound again, it keeps what the programs have learned of its path; they may be writing it.
        if known.is_bound and bound.is_at(known):
            return greeter.stays(number)
        # The workers that are bound already agree with each other.
        if any(other.is_v6 != bound.is_v6 for other in islice(self._bound(seat), 1)):
            raise Error("all workers of a job must send by IPv4, or all by IPv6")
        if not greeter.moves(known, bound, number):
            raise Error(f"an old greeting of worker {worker} of job {job:016x} came from elsewhere")
        bound.greeted = number
        self._workers[place] = bound

    def has_job(self, job: int) -> bool:
        return job in self._seats

    def greeted(self, job: int, worker: int) -> int:
        """The number of the last hello of a worker that the programs have seen, or that has moved
        it. Raises KeyError."""
        return int(self._workers[self._seats[job].place * WORKERS_MAX + worker].greeted)

    def way_up(self, job: int) -> int:
        """Bytes of the longest greeting that the parent has answered; 0: it has answered none.

        Raises KeyError.
        """
        return int(self._parents[self._seats[job].place].way_up)

    def forget_way_up(self, job: int) -> None:
        """Answer no workers any more, until the parent has answered again. Raises KeyError."""
        place = self._seats[job].place
        parent = self._parents[place]
        if parent.way_up:
            parent.way_up = 0
            self._parents[place] = parent

    def remove_job(self, job: int) -> None:
        """Take no more contributions of a job, and forget its sums. Raises KeyError."""
        place = self._seats.pop(job).place
        del self._places[job]
        # The kernel comes back from this when no program runs any more that has seen the job.
        del self._copies[place]
        for slot in range(SLOTS):
            self._slots[place * SLOTS + slot] = Slot()
        for each in range(place_of(place, 0, 0), place_of(place + 1, 0, 0)):
            self._workers[each] = Worker()
        self._counts[place] = (Counters * self._processors)()

    def stats(self, job: int) -> dict[str, int]:
        """Counters of a job; raises KeyError.

        Contributions taken; duplicates of them; stale ones of rounds that are over; rejected ones
        of a wrong tag, address or form; results; results resent; recalls; sums passed to the
        parent, and passed again.
        """
        return self._counted(self._seats[job].place)

    def check_way_out(self) -> None:
        """Raise Error where what programs send gets lost right behind the interface.

        That can be told of a veth only: greetings show it of others.
        """
        try:
            heard = self.hook != "xdp" or is_heard(self._name, self.programs)
        except OSError as error:
            _log.info("whether %s takes redirected packets cannot be tried: %s", self._name, error)
            return
        if not heard:
            raise Error(
                f"the other end of {self._name}, a veth, takes no redirected packets: turn GRO on "
                "there, `ethtool -K DEV gro on`"
            )

    def strays(self) -> int:
        """Contributions that were of no known job, and were left to the system."""
        return self._counted(JOBS_MAX)["rejected"]

    def close(self) -> None:
        """Take the programs from the interface. May be called again."""
        self.programs.close()

    def _attach(self, interface: str) -> str:
        try:
            self.programs.attach("contribute", interface, libbpf.ATTACH_XDP)
        except NoXdpError as error:
            self.programs.attach("contribute_slowly", interface, libbpf.ATTACH_TC_INGRESS)
            _log.warning("adding up behind the driver, by tc: %s", error)
            return "tc"
        self.programs.attach("grow", interface, libbpf.ATTACH_TC_INGRESS)
        _log.info("adding up in the driver of %s, by XDP", interface)
        return "xdp"

    def _open_maps(self) -> None:
        of = self.programs.map
        self._processors = int(library().libbpf_num_possible_cpus())
        self._places = Map(of("places"), c_uint32, c_uint64)
        self._jobs = Map(of("jobs"), Job)
        self._workers = Map(of("workers"), Worker)
        self._parents = Map(of("parents"), Parent)
        self._slots = Map(of("slots"), Slot)
        self._copies = Map(of("copies"), c_uint32)
        self._counts = Map(of("counts"), Counters * self._processors)

    def _bound(self, seat: _Seat) -> Iterator[Worker]:
        """The flows of a job's workers whose addresses are known, and its parent."""
        known = (self._workers[place] for place in seat.greeters)
        everybody = chain([self._parents[seat.place].at], known)
        return (each for each in everybody if each.is_bound)

    def _free_place(self) -> int:
        free = set(range(JOBS_MAX)) - {seat.place for seat in self._seats.values()}
        if not free:
            raise Error(f"the aggregator in the kernel takes {JOBS_MAX} jobs, and has them")
        return min(free)

    def _make_copies(self, place: int, workers: int) -> None:
        """A devmap of our one interface, as often as there are workers."""
        size = ctypes.sizeof(Copies)
        inner = library().bpf_map_create(libbpf.MAP_DEVMAP, b"copies", 4, size, workers, None)
        try:
            entries = Map(inner, Copies)
            for worker in range(workers):
                entries[worker] = Copies(self._interface, self.programs.program("copy"))
            self._copies[place] = c_uint32(inner)
        finally:
            os.close(inner)

    def _counted(self, place: int) -> dict[str, int]:
        total: Counter[str] = Counter()
        for of_processor in self._counts[place]:
            total.update(of_processor.as_dict())
        return dict(total)


def _constants(port: int, host: str) -> bytes:
    """The constants of bpf/frame.h, in the order of their addresses."""
    own = packed(host) if host else bytes(16)
    is_any = own.removeprefix(MAPPED) == bytes(len(own.removeprefix(MAPPED)))
    return port.to_bytes(2, "big") + bytes(2) + (bytes(16) if is_any else own)
