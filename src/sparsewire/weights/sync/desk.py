"""The desk of a publisher: who reads, who waits for which version, and who gets it from whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sparsewire.errors import ProtocolError
from sparsewire.weights.sync.chain import Chain, Entry
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.fan_out import Candidate, Sources, sources, stripes
from sparsewire.weights.sync.plan import Plan
from sparsewire.weights.sync.told import fingerprint_in, mbits_in, number_in, relay_in, text_in

_GROUPS_MAX = 64
_AHEAD_MAX = 1 << 20
_PLAIN = Candidate(relays=False)


class Doing(Enum):
    """What a reader does, as far as the publisher knows."""

    CALLING = "calling"
    WAITING = "waiting"
    STAGING = "staging"
    READING = "reading"
    GONE = "gone"


@dataclass(eq=False)
class Reader:
    """One connection, and what it told of itself. Nothing of that is proved but the secret."""

    address: str
    seen: float
    name: str = ""
    relay: str = ""
    candidate: Candidate = _PLAIN
    doing: Doing = Doing.CALLING
    applied: int | None = None
    verified: int | None = None
    fed: int = 0  # Readers that were told to get a message here.


@dataclass(frozen=True)
class Want:
    """What a reader asks for: a version, or anything newer than `at` for None. `applied` is the
    version that it has, by its number, and `have` by its bits."""

    reader: Reader
    version: int | None
    at: int | None
    applied: int | None
    have: bytes | None
    names: str
    given: asyncio.Future[Document] = field(compare=False)


@dataclass(frozen=True)
class Book:
    """The newest version's list of names, which tells readers what their fingerprint is of."""

    names: Sequence[str]
    digest: str


class PublishersDesk:
    """Only the loop's thread touches it."""

    def __init__(self, chain: Chain, identity: str) -> None:
        self._chain = chain
        self._identity = identity
        self._book: Book | None = None
        self._readers: set[Reader] = set()
        self._waiting: list[Want] = []
        self._groups: dict[tuple[str, ...], list[Reader]] = {}
        self.ahead: int | None = None
        """The newest version that a reader has and the chain has not: somebody else made it."""

    def enter(self, address: str) -> Reader:
        reader = Reader(address, time.monotonic())
        self._readers.add(reader)
        return reader

    def leave(self, caller: Reader) -> None:
        caller.doing = Doing.GONE
        self._readers.discard(caller)
        for group in self._groups.values():
            if caller in group:
                group.remove(caller)

    def hear(self, caller: Reader, told: Document) -> None:
        """A reader tells which version it has, which one it has verified, and who failed it."""
        caller.seen = time.monotonic()
        caller.applied, caller.verified = number_in(told, "applied"), number_in(told, "verified")
        if caller.doing is Doing.STAGING and caller.verified is not None:
            caller.doing = Doing.READING
        if relay := text_in(told, "failed"):
            self._blame(relay)

    async def answer(self, caller: Reader, request: Document) -> Document:
        caller.seen = time.monotonic()
        match request.get("op"):
            case "join":
                return self._join(caller, request)
            case "want":
                return await self._want(caller, request)
            case "status":
                return self.status()
        raise ProtocolError(f"a reader asked for {request.get('op')!r:.40}")

    def announce(self, book: Book) -> None:
        """Tell the waiting readers that the chain has a new version."""
        self._book = book
        waiting, self._waiting = self._waiting, []
        wants = [want for want in waiting if not want.given.done()]
        ready = [(want, answer) for want in wants if (answer := self._ready(want)) is not None]
        self._waiting = [want for want in wants if all(want is not each for each, _ in ready)]
        by_path: dict[tuple[str, ...], list[tuple[Want, Plan]]] = {}
        for want, answer in ready:
            if isinstance(answer, Plan):
                by_path.setdefault(answer.keys, []).append((want, answer))
            else:
                want.given.set_result(answer)
        for keys, group in by_path.items():
            self._deal(keys, group)

    def status(self) -> Document:
        head = self._chain.head
        now = time.monotonic()
        return {
            "chain": self._identity,
            "version": head.version if head else None,
            "messages": [
                {"version": each.version, "base": each.base, "bytes": each.size}
                for each in self._chain.entries
            ],
            "readers": [
                _row(each, head, now) for each in self._readers if each.doing is not Doing.CALLING
            ],
        }

    def _join(self, reader: Reader, request: Document) -> Document:
        reader.name = text_in(request, "name") or reader.address
        reader.relay = relay_in(request, reader.address)
        site = text_in(request, "site")
        reader.candidate = Candidate(bool(reader.relay), site, mbits_in(request))
        reader.doing = Doing.READING
        self.hear(reader, request)
        if text_in(request, "chain") == self._identity:
            self._note_ahead(reader.applied)
        return {"chain": self._identity}

    def _note_ahead(self, applied: int | None) -> None:
        newest = self._chain.head.version if self._chain.head else -1
        # Anybody may claim anything where there is no secret: what is far off binds nobody.
        if applied is not None and newest < applied <= newest + _AHEAD_MAX:
            self.ahead = max(applied, -1 if self.ahead is None else self.ahead)

    async def _want(self, reader: Reader, request: Document) -> Document:
        given: asyncio.Future[Document] = asyncio.get_running_loop().create_future()
        version, have = number_in(request, "version"), fingerprint_in(request, "have")
        at, applied = number_in(request, "at"), number_in(request, "applied")
        if text_in(request, "chain") != self._identity:
            at = applied = None  # Those are numbers of another publisher's.
        want = Want(reader, version, at, applied, have, text_in(request, "names"), given)
        reader.doing = Doing.WAITING
        answer = self._ready(want)
        if isinstance(answer, Plan):
            return self._late(want, answer)
        if answer is not None:
            return answer
        self._waiting.append(want)
        try:
            return await given
        finally:
            self._waiting = [each for each in self._waiting if each is not want]

    def _ready(self, want: Want) -> Plan | Document | None:
        """What a reader gets now; None where it has to wait."""
        head = self._chain.head
        if head is None or self._book is None:
            return None
        version = head.version if want.version is None else want.version
        if version > head.version or (want.version is None and _is_old(head, want)):
            return None
        is_known = want.have is not None and self._chain.version_of(want.have) is not None
        if not is_known and want.names != self._book.digest:
            return {"names": list(self._book.names), "digest": self._book.digest}
        path = self._chain.path(want.have, version)
        if path is None:
            return {"error": self._no_way(version)}
        anchor = self._chain.path(None, version)
        made = path[-1].made if path else want.have
        assert made is not None
        whole = sum(each.size for each in anchor or [])
        return Plan(self._identity, version, made, whole, path, [None])

    def _no_way(self, version: int) -> str:
        versions = sorted({each.version for each in self._chain.entries})
        return (
            f"version {version} is not there, or no longer: the publisher has versions "
            f"{versions[0]} to {versions[-1]}. Ask for one of them, or for the newest"
        )

    def _deal(self, keys: tuple[str, ...], group: Sequence[tuple[Want, Plan]]) -> None:
        """Give all readers that wait for the same messages their sources: trees."""
        count = max((len(stripes(each.size)) for each in group[0][1].entries), default=1)
        readers = [want.reader for want, _ in group]
        found = sources([reader.candidate for reader in readers], count)
        for (want, plan), own in zip(group, found, strict=True):
            relays = [None if each is None else readers[each].relay for each in own]
            self._give(want.reader, own, readers)
            want.given.set_result(plan._replace(relays=relays).document())
        self._remember(keys, readers)

    @staticmethod
    def _give(reader: Reader, own: Sources, readers: Sequence[Reader]) -> None:
        reader.doing = Doing.STAGING
        for source in own:
            if source is not None:
                readers[source].fed += 1

    def _late(self, want: Want, plan: Plan) -> Document:
        """The answer when others have begun: the relay that feeds fewest."""
        want.reader.doing = Doing.STAGING
        relays = [
            each
            for each in self._groups.get(plan.keys, [])
            if each.relay
            and each.doing is not Doing.GONE
            and each is not want.reader
            and each.candidate.site == want.reader.candidate.site
        ]
        source = min(relays, key=lambda each: each.fed, default=None)
        if source:
            source.fed += 2
        self._remember(plan.keys, [want.reader])
        return plan._replace(relays=[source.relay if source else None]).document()

    def _remember(self, keys: tuple[str, ...], readers: Sequence[Reader]) -> None:
        if not keys:
            return
        group = self._groups.setdefault(keys, [])
        group += [each for each in readers if each.relay and each not in group]
        while len(self._groups) > _GROUPS_MAX:
            self._groups.pop(next(iter(self._groups)))

    def _blame(self, relay: str) -> None:
        """A relay failed a reader: nobody is sent there until it joins anew."""
        for group in self._groups.values():
            group[:] = [each for each in group if each.relay != relay]
        for reader in self._readers:
            if relay and reader.relay == relay:
                reader.relay, reader.candidate = "", reader.candidate._replace(relays=False)


def _is_old(head: Entry, want: Want) -> bool:
    """Whether the reader has it, or left it; not so if its bits are others under the same number,
    of a publisher before or of an `apply` that failed half-way."""
    is_other = want.applied == head.version and want.have != head.made
    return want.at is not None and head.version <= want.at and not is_other


def _row(reader: Reader, head: Entry | None, now: float) -> dict[str, Any]:
    return {
        "name": reader.name,
        "address": reader.address,
        "relay": reader.relay or None,
        "site": reader.candidate.site,
        "doing": reader.doing.value,
        "version": reader.applied,
        "verified": reader.verified,
        "is_newest": head is not None and reader.applied == head.version,
        "seen_s": now - reader.seen,
    }
