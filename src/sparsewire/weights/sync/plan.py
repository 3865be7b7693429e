"""A publisher's answer to a reader: which messages make the version, and where to get them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparsewire.errors import ProtocolError
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.channel import Document

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
                _count(document["version"]),
                bytes.fromhex(document["made"]),
                _count(document["whole_nbytes"]),
                [_entry(each) for each in document["entries"]],
                [None if each is None else str(each) for each in document["relays"]],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise ProtocolError(f"the publisher sent no plan: {error}") from None
        if not plan.relays or (plan.entries and plan.entries[-1].made != plan.made):
            raise ProtocolError("the publisher sent a plan that does not make its version")
        return plan


def _described(entry: Entry) -> Document:
    texts = {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in entry._asdict().items()
    }
    return texts


def _entry(document: Document) -> Entry:
    base = document["base"]
    return Entry(
        _count(document["version"]),
        None if base is None else _count(base),
        bytes.fromhex(document["had"]),
        bytes.fromhex(document["made"]),
        _count(document["size"]),
        bytes.fromhex(document["checksum"]),
    )


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < _SIZE_MAX:
        raise ValueError(f"{value!r:.40} is no count")
    return value
