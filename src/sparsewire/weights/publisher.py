"""The publisher: compares each version with the last one, and serves what changed to readers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sparsewire.errors import InputError
from sparsewire.lifetime import close_at_exit, closes_now
from sparsewire.meeting.contact.sockets import bind as bind_door
from sparsewire.meeting.contact.sockets import is_loopback
from sparsewire.options import Address
from sparsewire.weights.access import address_of, secret_of
from sparsewire.weights.history import History, Written
from sparsewire.weights.offer import Offer
from sparsewire.weights.sync.chain import Chain, Entry
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.desk import Book, PublishersDesk
from sparsewire.weights.sync.loop import LoopThread
from sparsewire.weights.sync.numbering import next_number
from sparsewire.weights.sync.server import Server
from sparsewire.weights.sync.shelf import Held, Shelf
from sparsewire.weights.sync.store import Store
from sparsewire.weights.versions.coding import Coder, checksum

_log = logging.getLogger(__name__)

KEEP = 64


class Published(NamedTuple):
    """What a version came to: of `elements` in all `changed` differ, and `nbytes` go to a reader
    of the version before; all weights have `whole_nbytes`. `seconds` is the time it took."""

    version: int
    changed: int
    elements: int
    nbytes: int
    whole_nbytes: int
    seconds: float


class Publisher:
    """Serves versions of weights to readers (`Receiver`), each in the bytes of what changed.

    It holds one copy of the last version. Use it in a `with`, or close it.
    """

    def __init__(
        self,
        bind: str | Address = "0.0.0.0:0",
        *,
        secret: str | bytes | None = None,
        keep: int = KEEP,
        directory: str | Path | None = None,
        threads: int | None = None,
    ) -> None:
        """Listen at `bind`, "host:port"; port 0 finds a free one, which `address` tells.

        Readers need the same `secret`, by default that of SPARSEWIRE_SECRET. Readers that lag by up
        to `keep` versions get deltas, others the whole version. Messages and the last version lie
        in memory, or in `directory`: a publisher that comes back there goes on with its chain.
        `threads` compare, by default as many as there are processors.

        Raises InputError for what is no such setting, or a directory from which another process
        publishes; DataError for a directory of another version of sparsewire, or one whose messages
        do not make its newest version; Error if it cannot listen; OSError.
        """
        if type(keep) is not int or keep < 1:
            raise InputError(f"keep={keep!r} is no positive number of versions")
        door_at, own_secret = address_of(bind), secret_of(secret)
        self._coder = Coder(threads)
        self._store = Store(Path(directory) if directory else None)
        self._chain = Chain(keep)
        self._shelf = Shelf()
        self._desk = PublishersDesk(self._chain, self._store.identity)
        self._history = History(self._store, self._chain, self._coder)
        self._publishing = threading.Lock()
        self._anchors = ThreadPoolExecutor(1, "weights anchor")
        self._loop = LoopThread("weights publisher")
        self._server: Server | None = None
        self._close = self.close
        try:
            self._open(door_at, own_secret)
        except BaseException:
            self._shut()
            raise
        close_at_exit(self._close)

    def _open(self, door_at: Address, secret: bytes) -> None:
        """Go on with the chain of the store, and serve it."""
        self._history.load()
        door = bind_door(*door_at)
        self._server = self._loop.call(lambda: Server(door, secret, self._shelf, self._desk))
        if not secret and not is_loopback(self.address.host):
            _log.warning(
                "anybody who reaches %s may read these weights: give publisher and readers a "
                "secret, or listen on 127.0.0.1",
                self.address,
            )
        if self._chain.head:
            self._announce(self._history.names, self._shelve_all)

    @property
    def address(self) -> Address:
        """The host and the port that it listens at."""
        assert self._server
        return self._server.address

    @property
    def version(self) -> int | None:
        """The newest version; None if there is none yet."""
        head = self._chain.head
        return head.version if head else None

    def publish(
        self,
        tensors: Any,
        version: int | None = None,
        *,
        complete: bool = True,
        mesh: Any = None,
    ) -> Published:
        """Make a new version of `tensors`, and tell the readers that wait.

        `tensors` are a module, a state_dict or another mapping of names to tensors of torch or
        arrays, an iterable of such pairs, or the path of a safetensors file or directory of them.
        Every dtype of whole bytes keeps its bits. Of a table that was published before, rows with
        new values will do: a `SparseVector` in its place. Each tensor is read once, in order, so a
        generator may make them one at a time. Tied tensors of a mapping go once. If not
        `complete`, they are a part, and other tensors stay as they are; otherwise tensors that
        are not there are removed. Of DTensors the parts of this rank are published: `mesh` is the
        DeviceMesh of all ranks that hold the model together, and each of them has a publisher of
        its own. `version` is a number above the last one's, by default the next.

        The tensors may not change meanwhile. Readers see the version as a whole, or not at all. If
        this raises, nothing was published.

        Raises InputError for tensors that are none, MismatchError for a dtype or shape that
        changed or a version that is not newer, DataError for files that are none, OSError where
        there is no room.
        """
        with self._publishing:
            self._check_open()
            begin = time.perf_counter()
            newest = -1 if self.version is None else self.version
            number = next_number(version, newest, self._desk.ahead, self._store.lost)
            written = self._history.write(number, Offer(tensors, mesh), complete=complete)
            self._announce(list(written.delta.spans()), lambda: self._take(written))
            self._history.follow(written)
            published = Published(
                number,
                written.changed,
                self._history.elements,
                written.entry.size,
                self._history.nbytes,
                time.perf_counter() - begin,
            )
            if self._chain.wants_anchor():
                self._anchors.submit(self._make_anchor)
        return published

    async def publish_async(
        self,
        tensors: Any,
        version: int | None = None,
        *,
        complete: bool = True,
        mesh: Any = None,
    ) -> Published:
        """`publish` on a thread of its own; the tensors may not change before it is done."""
        return await asyncio.to_thread(self.publish, tensors, version, complete=complete, mesh=mesh)

    def status(self) -> Document:
        """The chain's versions and messages, and its readers, as values of JSON."""
        self._check_open()
        server = self._server
        assert server
        return self._loop.call(lambda: self._desk.status() | {"bytes_sent": server.bytes_sent})

    def _announce(self, names: Sequence[str], take: Callable[[], None]) -> None:
        """On the loop's thread call `take`, and tell readers of the version with these tensors."""
        book = Book(names, checksum("\0".join(names).encode()).hex())

        def announce() -> None:
            take()
            self._desk.announce(book)

        self._loop.call(announce)

    def _take(self, written: Written) -> None:
        """Take a message into the chain; on the loop's thread."""
        self._chain.add(written.entry)
        self._shelve(written.entry, written.memory)
        dropped = self._chain.prune()
        self._shelf.drop([each.key for each in dropped])
        self._store.drop(dropped)

    def _shelve(self, entry: Entry, memory: memoryview) -> None:
        self._shelf.put(Held(entry, memory, is_whole=True))

    def _shelve_all(self) -> None:
        for entry in self._chain.entries:
            self._shelve(entry, self._store.memory(entry))

    def _make_anchor(self) -> None:
        with self._publishing:
            if not self._loop.is_running:
                return
            try:
                if written := self._history.anchor():
                    self._loop.call(lambda: self._take(written))
            except OSError as error:
                _log.warning("the whole version could not be written for late readers: %s", error)

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise InputError("this publisher is closed: make a new one")

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End serving; what is in the directory stays. Readers go on with what they have."""
        closes_now(self._close)
        with self._publishing:
            self._shut()

    def _shut(self) -> None:
        self._loop.close()
        if self._server:
            self._server.close()
        self._anchors.shutdown(wait=False, cancel_futures=True)
        self._coder.close()
        self._store.close()
