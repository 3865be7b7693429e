"""What a reader has of one publisher: it asks for versions, gets their messages, passes them on."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sparsewire.errors import DataError, MismatchError, ProtocolError
from sparsewire.options import Address
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.fetch import Fetch, Gone
from sparsewire.weights.sync.follow import Follower
from sparsewire.weights.sync.plan import Plan
from sparsewire.weights.sync.server import Server
from sparsewire.weights.sync.shelf import Held, Shelf
from sparsewire.weights.versions.message import Delta, parse
from sparsewire.weights.versions.safetensors import Span
from sparsewire.weights.versions.spool import memory

_log = logging.getLogger(__name__)

_AGAIN_S = 0.2


class Base(Protocol):
    """What a reader has: `version` of the chain with this identity, its fingerprint `have`, and the
    digest of the names of which that is; None and "" where they are not known."""

    @property
    def version(self) -> int | None: ...
    @property
    def chain(self) -> str: ...
    @property
    def have(self) -> bytes | None: ...
    @property
    def digest(self) -> str: ...
    def meet(self, names: Sequence[str], digest: str) -> None:
        """Learn what the publisher's tensors are called, and find the fingerprint of those."""

    def check(self, spans: Mapping[str, Span]) -> None:
        """Raise MismatchError where these tensors cannot be taken."""


class Arrived(NamedTuple):
    """A version in full: its plan, the messages in order, bytes that came from other readers, and
    the seconds of waiting for it and of fetching it."""

    plan: Plan
    deltas: list[Delta]
    bytes_from_relays: int
    waiting_s: float
    fetching_s: float


class Subscription:
    """One publisher, as a reader follows it. Only the loop's thread uses it."""

    def __init__(
        self,
        address: Address,
        secret: bytes,
        base: Base,
        tell: Callable[[], Document],
        door: socket.socket | None,
    ) -> None:
        """`tell` gives what the publisher hears of this reader; at `door` others get messages."""
        self._address = address
        self._secret = secret
        self._base = base
        self._tell = tell
        self._shelf = Shelf()
        self._server = Server(door, secret, self._shelf, None) if door else None
        self._follower = Follower(address, secret, self._tell_all)
        self._coming: list[Held] = []
        self._chain = ""

    @property
    def address(self) -> Address:
        return self._address

    @property
    def relay(self) -> Address | None:
        """Where it passes messages on."""
        return self._server.address if self._server else None

    @property
    def bytes_sent(self) -> int:
        return self._server.bytes_sent if self._server else 0

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that came of what is under way, and of how many; zeros between."""
        held = self._coming
        return sum(each.received for each in held), sum(each.entry.size for each in held)

    def note(self) -> None:
        """Tell the publisher, soon, how far this reader is."""
        self._follower.note()

    def close(self) -> None:
        """Hang up, once the loop has ended."""
        self._follower.close()
        if self._server:
            self._server.close()

    def _tell_all(self) -> Document:
        """What the publisher hears of this reader, its relay and its chain."""
        relay = {"relay": str(self._server.address)} if self._server else {}
        return {**self._tell(), **relay, "chain": self._base.chain}

    async def obtain(self, version: int | None, above: int | None, limit: float) -> Arrived:
        """Get `version`, or one newer than both the base's and `above`, within `limit` seconds."""
        begin = time.monotonic()
        takes_deltas = True
        while True:
            plan = await self._plan(version, above, begin + limit, takes_deltas=takes_deltas)
            planned = time.monotonic()
            try:
                deltas, from_relays = await self._all(plan, begin + limit)
            except Gone as error:  # Newer versions came meanwhile, or another publisher.
                _log.info("asking again for version %d: %s", plan.version, error)
                await asyncio.sleep(_AGAIN_S)
            except DataError:
                if not takes_deltas or not plan.is_delta:
                    raise
                takes_deltas = False
            else:
                fetching_s = time.monotonic() - planned
                return Arrived(plan, deltas, from_relays, planned - begin, fetching_s)

    async def _plan(
        self, version: int | None, above: int | None, deadline: float, *, takes_deltas: bool
    ) -> Plan:
        while True:
            request = self._request(version, above, takes_deltas=takes_deltas)
            answer = await self._follower.ask(request, deadline)
            if "names" not in answer:
                return self._planned(answer, request)
            names, digest = _names(answer)
            await asyncio.to_thread(self._base.meet, names, digest)

    def _request(self, version: int | None, above: int | None, *, takes_deltas: bool) -> Document:
        have = self._base.have if takes_deltas else None
        applied = self._base.version if self._base.chain == self._chain else None
        return {
            "op": "want",
            "version": version,
            "chain": self._chain,
            "at": max((each for each in (applied, above) if each is not None), default=None),
            "applied": applied,
            "have": have.hex() if have else "",
            "names": self._base.digest,
        }

    def _planned(self, answer: Document, request: Document) -> Plan:
        """The plan that answers a request; raises ProtocolError for another answer."""
        plan = Plan.read(answer)
        self._meet_chain(plan)
        at = request["at"] if plan.chain == request["chain"] else None
        self._check_asked(plan, request["version"], at)
        return plan

    def _meet_chain(self, plan: Plan) -> None:
        if self._chain and plan.chain != self._chain:
            _log.warning(
                "the publisher at %s began another chain of versions: %d is its newest",
                self._address,
                plan.version,
            )
        self._chain = plan.chain

    def _check_asked(self, plan: Plan, version: int | None, at: int | None) -> None:
        """Raise ProtocolError for a plan of another version than was asked for."""
        is_other = plan.version == self._base.version and plan.made != self._base.have
        is_newer = at is None or plan.version > at or is_other
        if not is_newer if version is None else plan.version != version:
            raise ProtocolError(
                f"the publisher sent version {plan.version}, and this reader asked for "
                + (f"one above {at}" if version is None else f"version {version}")
            )

    async def _all(self, plan: Plan, deadline: float) -> tuple[list[Delta], int]:
        """Get all messages of a plan; returns them, and how many bytes came from relays."""
        came: list[Delta] = []
        from_relays = 0
        self._coming = [_room(entry) for entry in plan.entries]
        try:
            for number in range(len(plan.entries)):
                delta, relayed = await self._get(plan, number, deadline)
                came.append(delta)
                from_relays += relayed
        finally:
            self._coming = []
        _check_chain(plan, came, self._base.have)
        if came:
            self._base.check(came[-1].spans())
        self._shelf.keep_only(set(plan.keys))
        return came, from_relays

    async def _get(self, plan: Plan, number: int, deadline: float) -> tuple[Delta, int]:
        """Get one message; a damaged one is fetched once more, from the publisher alone."""
        entry = plan.entries[number]
        for relays in (plan.relays, [None]):
            held = self._coming[number]
            self._shelf.put(held)
            try:
                return await self._fetched(held, relays, deadline)
            except DataError as error:
                held.lose()
                self._coming[number] = _room(entry)
                _log.warning("message %s came damaged: %s", entry.key, error)
                for relay in filter(None, relays):
                    self._blame(relay)
        raise DataError(
            f"message {entry.key} came damaged twice, the second time from the publisher itself"
        )

    async def _fetched(
        self, held: Held, relays: Sequence[str | None], deadline: float
    ) -> tuple[Delta, int]:
        """The message, and how many bytes came from relays; raises DataError for a damaged one."""
        entry = held.entry
        source = f"message {entry.key}"
        fetch = Fetch(held, self._address, self._secret, deadline, self._blame)
        await fetch.run(relays)
        delta = await asyncio.to_thread(parse, held.memory.toreadonly(), source)
        if (delta.checksum, delta.version) != (entry.checksum, str(entry.version)):
            raise DataError(f"{source} is another one than the publisher has")
        return delta, fetch.bytes_from_relays

    def _blame(self, relay: str) -> None:
        self._follower.note(failed=relay)


def _room(entry: Entry) -> Held:
    return Held(entry, memoryview(memory(entry.size).data), is_whole=False)


def _names(answer: Document) -> tuple[list[str], str]:
    names = answer["names"]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ProtocolError("the publisher sent names of tensors that are none")
    return names, str(answer.get("digest"))


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
