"""The aggregator in the kernel, as its process sees it: jobs come and go, workers are bound."""

from __future__ import annotations

import ctypes
import os
import socket
from collections import Counter
from ctypes import c_uint32, c_uint64

from sparsewire.errors import Error
from sparsewire.lifetime import disown_in_child
from sparsewire.xdp import libbpf
from sparsewire.xdp.libbpf import library
from sparsewire.xdp.loader import Programs, interface_index, object_path
from sparsewire.xdp.maps import (
    JOBS_MAX,
    SLOTS,
    WORKERS_MAX,
    Copies,
    Counters,
    Job,
    Map,
    Slot,
    Worker,
)
from sparsewire.xdp.tag_key import tag_key


class XdpPlane:
    """The programs at one interface, and the jobs that they add up for.

    All datagrams that are not a worker's contribution still reach the socket at the same port.
    Not safe to call from several threads at once.
    """

    def __init__(self, interface: str, port: int) -> None:
        """Load the programs, and attach them. Raises Error, which says what is missing."""
        self._interface = interface_index(interface)
        self._programs = Programs(object_path(), port.to_bytes(2, "big"))
        disown_in_child(self, "close")
        try:
            self._open_maps(self._programs)
            self._programs.attach("grow", interface, libbpf.ATTACH_TC_INGRESS)
            self._programs.attach("contribute", interface, libbpf.ATTACH_XDP)
        except BaseException:
            self.close()
            raise

    def add_job(self, job: int, epoch: int, workers: int, key: bytes) -> None:
        """Take contributions of a job from now on, with this key of 32 bytes.

        Raises Error where it has too many workers, or there are too many jobs.
        """
        if not 1 <= workers <= WORKERS_MAX:
            raise Error(f"the aggregator in the kernel takes 1 to {WORKERS_MAX} workers a job")
        free = sorted(set(range(JOBS_MAX)) - set(self._places.values()))
        if job in self._places or not free:
            raise Error(
                f"job {job:016x} is there already"
                if job in self._places
                else f"the aggregator in the kernel has {JOBS_MAX} jobs, and takes no more"
            )
        place = free[0]
        words = tag_key(key)
        self._jobs[place] = Job(epoch, workers, (ctypes.c_uint8 * len(words))(*words))
        self._make_copies(place, workers)
        self._places[job] = place
        self._place_of_job[job] = c_uint32(place)
        self._workers_of[job] = workers

    def bind_worker(self, job: int, worker: int, host: str, port: int) -> None:
        """Take contributions of a worker from this address only. Raises Error."""
        if not 0 <= worker < self._workers_of.get(job, 0):
            raise Error(f"job {job:016x} has no worker {worker}")
        place = self._places[job] * WORKERS_MAX + worker
        address, known = _packed(host), self._workers[place]
        # What the programs have learned of its path is kept.
        if (bytes(known.address), bytes(known.port)) != (address, port.to_bytes(2, "big")):
            self._workers[place] = Worker(
                (ctypes.c_uint8 * 4)(*address), (ctypes.c_uint8 * 2)(*port.to_bytes(2, "big"))
            )

    def remove_job(self, job: int) -> None:
        """Take no more contributions of a job, and forget its sums."""
        place = self._places[job]
        del self._place_of_job[job]
        # The kernel returns from this when no program runs any more that saw the job.
        del self._copies[place]
        for slot in range(SLOTS):
            self._slots[place * SLOTS + slot] = Slot()
        for worker in range(WORKERS_MAX):
            self._workers[place * WORKERS_MAX + worker] = Worker()
        self._counts[place] = (Counters * self._processors)()
        del self._places[job], self._workers_of[job]

    def stats(self, job: int) -> dict[str, int]:
        """What has been counted of a job: contributions, duplicates, stale, rejected, results, ..."""
        return self._counted(self._places[job])

    def strays(self) -> int:
        """Contributions dropped because they were of no known job."""
        return self._counted(JOBS_MAX)["rejected"]

    def close(self) -> None:
        """Take the programs from the interface. May be called again."""
        self._programs.close()

    def _open_maps(self, programs: Programs) -> None:
        self._processors = int(library().libbpf_num_possible_cpus())
        self._places: dict[int, int] = {}
        self._workers_of: dict[int, int] = {}
        self._place_of_job = Map(programs.map("places"), c_uint32, c_uint64)
        self._jobs = Map(programs.map("jobs"), Job)
        self._workers = Map(programs.map("workers"), Worker)
        self._slots = Map(programs.map("slots"), Slot)
        self._copies = Map(programs.map("copies"), c_uint32)
        self._counts = Map(programs.map("counts"), Counters * self._processors)

    def _make_copies(self, place: int, workers: int) -> None:
        """A devmap of our one interface, as often as there are workers."""
        size = ctypes.sizeof(Copies)
        inner = library().bpf_map_create(libbpf.MAP_DEVMAP, b"copies", 4, size, workers, None)
        try:
            entry = Copies(self._interface, self._programs.program("copy"))
            for worker in range(workers):
                Map(inner, Copies)[worker] = entry
            self._copies[place] = c_uint32(inner)
        finally:
            os.close(inner)

    def _counted(self, place: int) -> dict[str, int]:
        total: Counter[str] = Counter()
        for of_processor in self._counts[place]:
            total.update({name: getattr(of_processor, name) for name, _ in Counters._fields_})
        return dict(total)


def _packed(host: str) -> bytes:
    try:
        return socket.inet_aton(host.removeprefix("::ffff:"))
    except OSError:
        raise Error(f"the aggregator in the kernel takes IPv4 addresses, and not {host}") from None
