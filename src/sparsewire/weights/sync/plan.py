"""A publisher's answer to a reader: which messages make the version, and where to get them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sparsewire.errors import ProtocolError
from sparsewire.weights.sync.chain import VERSION_MAX, Entry, follows
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.versions.coding import checksum_from

_SIZE_MAX = 2**62


class Plan(NamedTuple):
    """`entries` in order make `version`, whose fingerprint is `made`. `relays` are the addresses to
    get stripes from, None for the publisher. `whole_nbytes` is what the whole version would cost.
    """

    chain: str
    version: int
    made: bytes
    whole_nbytes: int
    entries: Sequence[Entry]
    relays: Sequence[str | None]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(each.key for each in self.entries)

    @property
    def is_delta(self) -> bool:
        """Whether it builds on what the reader has."""
        return bool(self.entries) and not self.entries[0].is_anchor

    def document(self) -> Document:
        return {
            "chain": self.chain,
            "version": self.version,
            "made": self.made.hex(),
            "whole_nbytes": self.whole_nbytes,
            "entries": [_described(each) for each in self.entries],
            "relays": self.relays,
        }

    @classmethod
    def read(cls, document: Document) -> Plan:
        """Raises ProtocolError for what is no plan."""
        try:
            plan = cls(
                str(document["chain"]),
                _count(document["version"], VERSION_MAX),
                checksum_from(document["made"]),
                _count(document["whole_nbytes"], _SIZE_MAX),
                [_entry(each) for each in document["entries"]],
                [None if each is None else str(each) for each in document["relays"]],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise ProtocolError(f"the publisher sent no plan: {error}") from None
        if not plan.relays or not plan._makes_version():
            raise ProtocolError("the publisher sent a plan that does not make its version")
        return plan

    def _makes_version(self) -> bool:
        last = self.entries[-1] if self.entries else None
        return (last is None or (last.version, last.made) == (self.version, self.made)) and all(
            not after.is_anchor and follows(before, after)
            for before, after in pairwise(self.entries)
        )


def _described(entry: Entry) -> Document:
    return {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in entry._asdict().items()
    }


def _entry(document: Document) -> Entry:
    base = document["base"]
    return Entry(
        _count(document["version"], VERSION_MAX),
        None if base is None else _count(base, VERSION_MAX),
        b"" if base is None else checksum_from(document["had"]),
        checksum_from(document["made"]),
        _count(document["size"], _SIZE_MAX, 1),
        checksum_from(document["checksum"]),
    )


def _count(value: object, limit: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value < limit:
        raise ValueError(f"{value!r:.40} is no count")
    return value
