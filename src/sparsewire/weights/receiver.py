"""The receiver: a reader's end, which stages new versions beside its work and applies them."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

from sparsewire.errors import (
    DataError,
    Error,
    InputError,
    MismatchError,
    ProtocolError,
    Timeout,
)
from sparsewire.lifetime import close_at_exit, closes_now
from sparsewire.meeting.contact.sockets import bind as bind_door
from sparsewire.options import Address, parse_address
from sparsewire.weights.access import secret_of
from sparsewire.weights.coding import Coder
from sparsewire.weights.fingerprint import fingerprint
from sparsewire.weights.home import Home, home_of, memory
from sparsewire.weights.message import Delta, parse
from sparsewire.weights.preparing import Prepared, prepare
from sparsewire.weights.staged import Seconds, Staged, Way
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.fetch import Fetch, Gone
from sparsewire.weights.sync.follow import Follower
from sparsewire.weights.sync.loop import LoopThread
from sparsewire.weights.sync.plan import Plan
from sparsewire.weights.sync.server import Server
from sparsewire.weights.sync.shelf import Held, Shelf
from sparsewire.weights.tensors import Tensor

_log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
_WATCH_S = 3600.0
_PAUSE_S = 1.0
_AGAIN_S = 0.2


class Receiver:
    """Follows a `Publisher`: `stage()` gets a version, `verify()` checks it, `apply()` writes it.

    Use it in a `with`, or close it. Its methods are for one thread at a time, but for `status`.
    """

    def __init__(
        self,
        address: str | Address,
        base: Any = None,
        *,
        secret: str | bytes | None = None,
        name: str | None = None,
        relay: str | Address | None = None,
        site: str = "",
        mbits: float = 0,
        threads: int | None = None,
    ) -> None:
        """Follow the publisher at `address`, "host:port", which need not be there yet.

        `base` is what the reader has: a module or a mapping of names to tensors, which `apply`
        changes in place; the path of a safetensors file or directory, which is read into memory
        as it changes; or None, and the first version comes whole. If the publisher knows the bits
        of the base, only what changed comes. `tensors` has all of it.

        With `relay`, an address to listen at ("0.0.0.0:0" finds a port), it passes messages on to
        other readers. `site` names where it stands: between sites each message goes about once.
        `mbits` is the speed of its link, which places it in the tree. `name` is for `status`.

        Raises InputError for a base or a setting that is none, DataError for files that are none,
        Error if it cannot listen.
        """
        try:
            self._address = parse_address(address) if isinstance(address, str) else address
            door = _door(relay)
        except ValueError as error:
            raise InputError(str(error)) from None
        self._secret = secret_of(secret)
        self._home = home_of(base)
        self._told: Document = {"name": name or socket.gethostname(), "site": site, "mbits": mbits}
        self._version: int | None = None
        self._verified: int | None = None
        self._have: bytes | None = None
        self._sums: dict[str, bytes] = {}
        self._digest = ""
        self._coming: list[Held] = []
        self._served: tuple[Any, int] | None = None
        self._coder = Coder(threads)
        self._shelf = Shelf()
        self._server: Server | None = None
        self._busy = threading.Lock()
        self._loop = LoopThread("weights receiver")
        self._follower = self._loop.call(lambda: self._begin(door))
        self._close = self.close
        close_at_exit(self._close)

    def _begin(self, door: socket.socket | None) -> Follower:
        if door:
            self._server = Server(door, self._secret, self._shelf, None)
            self._told["relay"] = str(self._server.address)
        return Follower(self._address, self._secret, self._tell)

    def _tell(self) -> Document:
        """What the publisher hears of this reader."""
        return {**self._told, "applied": self._version, "verified": self._verified}

    @property
    def version(self) -> int | None:
        """The version that was applied last; None before."""
        return self._version

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors of the base, by name; `as_torch` and `as_numpy` give views of them."""
        return self._home.tensors

    @property
    def relay(self) -> Address | None:
        """Where it listens to pass messages on."""
        return self._server.address if self._server else None

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that came of what is being staged, and of how many; zeros between."""
        held = self._coming
        return sum(each.received for each in held), sum(each.entry.size for each in held)

    def stage(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """Wait for a version newer than this one, or for `version`, and get it in full.

        It takes `timeout` seconds at most, 300 by default. What comes is deltas or the whole
        version, whatever has fewer bytes. Memory beside the message is a few chunks.

        Raises Timeout; AuthenticationError for another secret; MismatchError where the reader
        cannot take the version's tensors; DataError for a message that is damaged, even as the
        whole version; ProtocolError for answers of no publisher; Error where the publisher has no
        such version; ResourceError where there is no room.
        """
        self._check_open()
        return self._loop.run(self._staging(version, None, _limit(timeout)))

    async def stage_async(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """`stage` for an event loop. Cancelling it ends the wait."""
        self._check_open()
        work = self._staging(version, None, _limit(timeout))
        return await asyncio.wrap_future(self._loop.begin(work))

    def watch(self, callback: Callable[[Staged], object]) -> Watch:
        """Call `callback` with each new version, staged, on a thread of its own, until `stop()`.

        It calls `verify` and `apply` when it suits the reader. A version that it leaves is skipped.
        What it raises is logged, and so are failures of the publisher or the network, and the
        watch goes on.
        """
        self._check_open()
        return Watch(self, callback)

    def status(self) -> Document:
        """What this reader has and passes on, as values of JSON."""
        return {
            "name": self._told["name"],
            "publisher": str(self._address),
            "version": self._version,
            "fingerprint": self._have.hex() if self._have else None,
            "relay": str(self.relay) if self.relay else None,
            "bytes_sent": self._server.bytes_sent if self._server else 0,
        }

    async def _staging(self, version: int | None, above: int | None, limit: float) -> Staged:
        """Stage `version`, or one newer than both what is applied and `above`."""
        begin = time.monotonic()
        takes_deltas = True
        while True:
            plan = await self._plan(version, above, begin + limit, takes_deltas=takes_deltas)
            planned = time.monotonic()
            try:
                came, from_relays = await self._all(plan, begin + limit)
            except Gone as error:  # Newer versions came meanwhile, or another publisher.
                _log.info("asking again for version %d: %s", plan.version, error)
                await asyncio.sleep(_AGAIN_S)
            except DataError:
                if not takes_deltas or not plan.entries or plan.entries[0].is_anchor:
                    raise
                takes_deltas = False
            else:
                seconds = Seconds(planned - begin, time.monotonic() - planned)
                return self._staged(plan, came, from_relays, seconds)

    async def _all(self, plan: Plan, deadline: float) -> tuple[list[Delta], int]:
        """Get all messages of a plan; returns them, and how many bytes came from relays."""
        came: list[Delta] = []
        from_relays = 0
        self._coming = [self._room(entry) for entry in plan.entries]
        try:
            for number in range(len(plan.entries)):
                delta, relayed = await self._get(plan, number, deadline)
                came.append(delta)
                from_relays += relayed
        finally:
            self._coming = []
        _check_chain(plan, came, self._have)
        if came:
            self._home.check(came[-1].spans())
        self._shelf.keep_only(set(plan.keys))
        return came, from_relays

    async def _plan(
        self, version: int | None, above: int | None, deadline: float, *, takes_deltas: bool
    ) -> Plan:
        while True:
            at = max((each for each in (self._version, above) if each is not None), default=None)
            answer = await self._follower.ask(
                {
                    "op": "want",
                    "version": version,
                    "at": at,
                    "applied": self._version,
                    "have": self._have.hex() if self._have and takes_deltas else "",
                    "names": self._digest,
                },
                deadline,
            )
            if "names" not in answer:
                plan = Plan.read(answer)
                self._check_asked(plan, version, at)
                return plan
            await asyncio.to_thread(self._meet_names, answer)

    def _check_asked(self, plan: Plan, version: int | None, at: int | None) -> None:
        """Raise ProtocolError for a plan of another version than was asked for."""
        is_other = plan.version == self._version and plan.made != self._have
        is_newer = at is None or plan.version > at or is_other
        if not is_newer if version is None else plan.version != version:
            raise ProtocolError(
                f"the publisher sent version {plan.version}, and this reader asked for "
                + (f"one above {at}" if version is None else f"version {version}")
            )

    def _meet_names(self, answer: Document) -> None:
        """Learn what the publisher's tensors are called, and find this base's fingerprint."""
        names = answer["names"]
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise ProtocolError("the publisher sent names of tensors that are none")
        own = {name: tensor for name in names if (tensor := self._home.tensors.get(name))}
        missing = {name: tensor for name, tensor in own.items() if name not in self._sums}
        found = self._coder.checksums(missing.values())
        self._sums |= dict(zip(missing, found, strict=True))
        self._have = fingerprint(own, self._sums) if len(own) == len(names) else None
        self._digest = str(answer.get("digest"))

    async def _get(self, plan: Plan, number: int, deadline: float) -> tuple[Delta, int]:
        """Get one message; a damaged one is fetched once more, from the publisher alone."""
        entry = plan.entries[number]
        source = f"message {entry.key}"
        for relays in (plan.relays, [None]):
            held = self._coming[number]
            self._shelf.put(held)
            fetch = Fetch(held, self._address, self._secret, deadline, self._blame)
            await fetch.run(relays)
            try:
                delta = await asyncio.to_thread(parse, held.memory.toreadonly(), source)
                if (delta.checksum, delta.version) != (entry.checksum, str(entry.version)):
                    raise DataError(f"{source} is another one than the publisher has")
                return delta, fetch.bytes_from_relays
            except DataError as error:
                held.lose()
                self._coming[number] = self._room(entry)
                _log.warning("%s came damaged: %s", source, error)
                for relay in filter(None, relays):
                    self._blame(relay)
        raise DataError(f"{source} came damaged twice, the second time from the publisher itself")

    @staticmethod
    def _room(entry: Entry) -> Held:
        return Held(entry, memoryview(memory(entry.size).data), is_whole=False)

    def _blame(self, relay: str) -> None:
        self._follower.note(failed=relay)

    def _staged(self, plan: Plan, came: list[Delta], from_relays: int, seconds: Seconds) -> Staged:
        nbytes = sum(entry.size for entry in plan.entries)
        is_whole = bool(plan.entries) and plan.entries[0].is_anchor
        way = Way(len(came), nbytes, from_relays, plan.whole_nbytes, is_whole)
        changed = list(dict.fromkeys(name for delta in came for name in delta.tensors))
        prepared: list[Prepared] = []
        base = self._version, self._have

        def check_base() -> None:
            if (self._version, self._have) != base:
                raise InputError(
                    f"version {plan.version} was staged over another version than the one that "
                    "is here now: stage it again"
                )

        def verify() -> None:
            with self._busy:
                check_base()
                if came:
                    prepared.append(prepare(came, self._home, self._sums, self._coder, memory))
                self._verified = plan.version
            self._loop.call(self._follower.note)

        def apply(model: Any) -> None:
            with self._busy:
                check_base()
                self._apply(plan, came, prepared[0] if prepared else Prepared(), model)

        return Staged(plan.version, way, seconds, changed, verify, apply)

    def _apply(self, plan: Plan, came: list[Delta], prepared: Prepared, model: Any) -> None:
        other = None if model is None else self._other(model, came)
        self._write(plan, came, prepared)
        if other:
            self._bring(other, model, prepared)
        self._version = plan.version
        self._served = (model, plan.version) if other else None
        self._loop.call(self._follower.note)

    def _write(self, plan: Plan, came: list[Delta], prepared: Prepared) -> None:
        """Make the base the version. If it fails half-way, its bits are unknown from then on, and
        the next version comes whole."""
        sums, digest = self._sums, self._digest
        self._have, self._sums, self._digest = None, {}, ""
        self._home.begin()
        prepared.write(self._home, self._coder)
        self._home.finish(came, plan.version)
        kept = {name: each for name, each in sums.items() if name not in prepared.removed}
        self._have, self._sums, self._digest = plan.made, kept | prepared.sums, digest

    def _other(self, model: Any, came: list[Delta]) -> Home | None:
        """The home of a model, if it is another one than the base."""
        home = home_of(model)
        spans = came[-1].spans() if came else {}
        home.check({name: span for name, span in spans.items() if name in home.tensors})
        mine = self._home.tensors
        is_same = all(
            name in mine and mine[name].data.ctypes.data == tensor.data.ctypes.data
            for name, tensor in home.tensors.items()
            if len(tensor.data)
        )
        return None if is_same else home

    def _bring(self, home: Home, model: Any, prepared: Prepared) -> None:
        """Make a model beside the base the same version."""
        is_behind = self._served is not None and self._served[0] is model
        if is_behind and self._served and self._served[1] == self._version:
            prepared.write_changes(home, self._coder)
            names = list(prepared.fresh)
        else:
            names = list(self._home.tensors)
        for name in names:
            if name in home.tensors:
                home.tensors[name].data[:] = self._home.tensors[name].data

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise InputError("this receiver is closed: make a new one")

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the publisher; the weights stay as they are."""
        closes_now(self._close)
        if not self._loop.is_running:
            return
        self._loop.close()
        self._follower.close()
        if self._server:
            self._server.close()
        self._coder.close()


class Watch:
    """A thread that hands each new version to a callback."""

    def __init__(self, receiver: Receiver, callback: Callable[[Staged], object]) -> None:
        """`Receiver.watch` makes it."""
        self._receiver = receiver
        self._callback = callback
        self._stopping = threading.Event()
        self._waiting: Any = None
        self._thread = threading.Thread(target=self._run, name="weights watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        above: int | None = None
        while not self._stopping.is_set():
            try:
                self._waiting = self._receiver._loop.begin(
                    self._receiver._staging(None, above, _WATCH_S)
                )
                staged = self._waiting.result()
            except CancelledError:
                return
            except (Error, OSError, RuntimeError) as error:
                if not isinstance(error, Timeout):
                    _log.warning("no new version of the weights: %s", error)
                self._stopping.wait(_PAUSE_S)
                continue
            above = staged.version
            try:
                self._callback(staged)
            except Exception:
                _log.exception("the callback failed for version %d of the weights", above)

    def stop(self) -> None:
        """End it; a callback that runs is waited for."""
        self._stopping.set()
        if self._waiting:
            self._waiting.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _limit(timeout: float | None) -> float:
    if timeout is None:
        return TIMEOUT_S
    if not timeout >= 0:
        raise InputError(f"timeout={timeout} is no number of seconds")
    return timeout


def _door(relay: str | Address | None) -> socket.socket | None:
    if relay is None:
        return None
    return bind_door(*(parse_address(relay) if isinstance(relay, str) else relay))


def _check_chain(plan: Plan, came: list[Delta], have: bytes | None) -> None:
    """Raise MismatchError where messages are not each the base of the next."""
    for delta in came:
        if delta.base and delta.base != have:
            raise MismatchError(
                f"version {delta.version} is made of version {delta.base_version}, whose "
                f"fingerprint is {delta.base.hex()}, and this reader has "
                f"{have.hex() if have else 'no version'}"
            )
        have = delta.fresh
    if have != plan.made:
        raise MismatchError(f"the messages make another version than {plan.version}")
