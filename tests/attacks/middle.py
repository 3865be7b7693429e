"""Stands between ranks and aggregators as whoever owns the path does: hands everything on, keeps
the datagrams, and sends them once more to all who must not take them."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sparsewire.options import Address

KEPT = 2000
AT_ONCE = 64
LARGEST = 1 << 16
# Where fields are in a datagram (core/wire/datagram.hpp).
KIND, WORKER, JOB_AND_EPOCH = 1, slice(2, 4), slice(8, 20)
UP, DOWN = "up", "down"

Dial = Callable[[int], socket.socket]
"""Makes a socket of a type where the aggregators can be reached."""


@dataclass(frozen=True)
class Kept:
    """A datagram as it passed."""

    data: bytes
    door: Door
    direction: str

    @property
    def worker(self) -> bytes:
        return self.data[WORKER]


@dataclass(eq=False)
class Path:
    """Between one worker and one aggregator."""

    door: Door
    client: tuple[str, int]
    upstream: socket.socket
    worker: bytes = b""
    header: bytes = b""
    """Job and epoch, as on the wire."""

    def send(self, data: bytes, direction: str) -> None:
        with contextlib.suppress(OSError):  # Who is gone takes nothing.
            if direction == UP:
                self.upstream.send(data)
            else:
                self.door.datagrams.sendto(data, self.client)

    def learn(self, data: bytes) -> None:
        self.worker, self.header = data[WORKER], data[JOB_AND_EPOCH]


@dataclass(eq=False)
class Door:
    """What stands for one aggregator, at an address of its own."""

    target: Address
    level: int
    listener: socket.socket
    datagrams: socket.socket
    paths: dict[tuple[str, int], Path] = field(default_factory=dict)

    @property
    def address(self) -> Address:
        return Address(*self.listener.getsockname()[:2])


class Middle:
    """Doors, one for each aggregator, in a thread; strikes as long as more are asked for."""

    def __init__(self, dial: Dial = lambda kind: socket.socket(socket.AF_INET, kind)) -> None:
        self._dial = dial
        self.doors: list[Door] = []
        self.strikes: Counter[str] = Counter()
        self.per_datagram = 0
        self._kept: deque[Kept] = deque(maxlen=KEPT)
        self._old: list[Kept] = []
        self._draw = random.Random(7)
        self._selector = selectors.DefaultSelector()
        self._stops = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def open(self, target: Address, level: int = 0) -> Address:
        """A door for an aggregator; `level` 1 for one whose workers are racks."""
        listener = socket.create_server(("127.0.0.1", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(listener.getsockname())
        datagrams.setblocking(False)
        door = Door(target, level, listener, datagrams)
        self.doors.append(door)
        self._selector.register(datagrams, selectors.EVENT_READ, door)
        thread = threading.Thread(target=self._take_connections, args=(door,), daemon=True)
        thread.start()
        return door.address

    def remember(self) -> None:
        """What has passed by now stays, for strikes at other jobs."""
        self._old = list(self._kept)

    def close(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()
        for door in self.doors:
            door.listener.close()
            door.datagrams.close()
            for path in door.paths.values():
                path.upstream.close()
        self._selector.close()

    # --- Connections ---

    def _take_connections(self, door: Door) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = door.listener.accept()
                far = self._dial(socket.SOCK_STREAM)
                try:
                    far.connect(door.target)
                except OSError:
                    near.close()
                    far.close()
                    continue
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_hand_on, args=ends, daemon=True).start()

    # --- Datagrams ---

    def _run(self) -> None:
        while not self._stops.is_set():
            for key, _ in self._selector.select(0.1):
                for _ in range(AT_ONCE):
                    try:
                        self._pass(key.data)
                    except BlockingIOError:
                        break
                    except OSError:  # Nobody listens there, yet or any more.
                        break

    def _pass(self, source: Door | Path) -> None:
        if isinstance(source, Door):
            data, client = source.datagrams.recvfrom(LARGEST)
            path, direction = self._path(source, client), UP
            path.learn(data)
        else:
            data, path, direction = source.upstream.recv(LARGEST), source, DOWN
        kept = Kept(data, path.door, direction)
        self._kept.append(kept)
        # Before it is where it belongs: what is new there is still new elsewhere.
        for _ in range(self.per_datagram):
            self._strike(kept)
            self._strike(self._draw.choice([*self._old[:1], *self._draw.choices(self._kept, k=1)]))
            if self._old:
                self._strike(self._draw.choice(self._old))
        path.send(data, direction)

    def _path(self, door: Door, client: tuple[str, int]) -> Path:
        if client not in door.paths:
            upstream = self._dial(socket.SOCK_DGRAM)
            upstream.connect(door.target)
            upstream.setblocking(False)
            door.paths[client] = path = Path(door, client, upstream)
            self._selector.register(upstream, selectors.EVENT_READ, path)
        return door.paths[client]

    # --- Strikes ---

    def _strike(self, kept: Kept) -> None:
        """To one of the paths of workers with the same number, one way or the other."""
        path = self._draw.choice([*self._targets(kept)])
        direction = kept.direction if self._draw.random() < 0.7 else _other(kept.direction)
        is_known = path.header and kept.data[JOB_AND_EPOCH] != path.header
        data = _claimed(kept.data, path.header) if is_known else kept.data
        self.strikes[_name(kept, path, direction)] += 1
        path.send(data, direction)

    def _targets(self, kept: Kept) -> Iterator[Path]:
        paths = [path for door in self.doors for path in list(door.paths.values())]
        alike = [path for path in paths if path.worker == kept.worker]
        return iter(alike or paths)


def _name(kept: Kept, path: Path, direction: str) -> str:
    """What is different from where it passed."""
    if kept.data[JOB_AND_EPOCH] != path.header:
        return "job"
    if kept.direction != direction:
        return "direction"
    if kept.door.level != path.door.level:
        return "level"
    return "copy" if kept.door is path.door else "aggregator"


def _claimed(data: bytes, header: bytes) -> bytes:
    """As if it were of that job and epoch."""
    return data[:8] + header + data[20:]


def _other(direction: str) -> str:
    return DOWN if direction == UP else UP


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(LARGEST):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
