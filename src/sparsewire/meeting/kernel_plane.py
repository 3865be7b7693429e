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
from typing import TYPE_CHECKING

from sparsewire._core import datagram_job, greeting, read_greeting
from sparsewire.errors import Error
from sparsewire.meeting.datagrams import HELLO, WELCOME

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


class KernelPlane:
    """The jobs that the kernel adds up for, and a thread that answers greetings."""

    def __init__(self, interface: str, receiver: socket.socket) -> None:
        """Load the programs at `interface`; takes over `receiver`. Raises Error."""
        from sparsewire.xdp import XdpPlane  # Only here: it loads libbpf.

        self._receiver = receiver
        try:
            self._plane: XdpPlane = XdpPlane(interface, receiver.getsockname()[1])
        except BaseException:
            receiver.close()
            raise
        self._keys: dict[int, tuple[bytes, int, int]] = {}
        self._complaints: set[tuple[int, str]] = set()
        self._mutex = threading.Lock()
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="greetings", daemon=True)
        self._thread.start()

    def add_job(self, job: int, epoch: int, workers: int, key: bytes) -> None:
        """Make room for a job, unless it is there. Raises Error where there is none."""
        with self._mutex:
            if job in self._keys:
                return
            self._plane.add_job(job, epoch, workers, key)
            self._keys[job] = key, epoch, workers

    def keep(self, jobs: Mapping[int, object]) -> None:
        """Forget all jobs but these."""
        with self._mutex:
            for job in self._keys.keys() - jobs.keys():
                self._plane.remove_job(job)
                del self._keys[job]
            self._complaints = {each for each in self._complaints if each[0] in self._keys}

    def stats(self) -> dict[int, dict[str, int]]:
        """Counters of each job."""
        with self._mutex:
            return {job: self._plane.stats(job) for job in self._keys}

    def strays(self) -> int:
        """Contributions of no known job."""
        with self._mutex:
            return self._plane.strays()

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
        """Bind the sender to its rank, and greet back; what is no greeting gets no answer."""
        job = datagram_job(data)
        with self._mutex:
            if job is None or job not in self._keys:
                return
            key, epoch, workers = self._keys[job]
            read = read_greeting(key, data)
            if read is None or read[:3] != (HELLO, job, epoch):
                return
            worker, party = read[3], read[5]
            if party[:4] != (workers, workers, 0, 1):
                return self._complain(job, "its racks need aggregators with --transport udp")
            try:
                self._plane.bind_worker(job, worker, sender[0], sender[1])
            except Error as error:
                return self._complain(job, f"rank {worker} is not taken: {error}")
        words = greeting(
            key, WELCOME, job, epoch, worker, len(data), party, adds_only_integers=True
        )
        self._receiver.sendto(words, sender)

    def _complain(self, job: int, text: str) -> None:
        """Say so once: whoever copies greetings shall not fill a disk."""
        if (job, text) not in self._complaints:
            self._complaints.add((job, text))
            _log.warning("job %016x: %s", job, text)


def _rest(worked: float) -> None:
    """Keep strangers, who cost work here, from taking more of a processor than their share."""
    time.sleep(min(worked * (1 / _BUSY_SHARE - 1), _MOST_REST_S))
