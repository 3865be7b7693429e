"""The chain of versions: which messages take a reader from what it has to what it wants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sparsewire.errors import InputError, MismatchError

VERSION_MAX = 10**12
"""Above all numbers of versions."""


# Deltas kept at most, in multiples of `keep`: many cost a late reader time, however short they are.
_KEPT_TIMES = 16


def check_version(version: object) -> None:
    """Raise InputError for what is no number of a version."""
    if type(version) is not int or not 0 <= version < VERSION_MAX:
        raise InputError(f"version {version!r:.40} is no number from 0 to 10^12: give an int")


class Entry(NamedTuple):
    """A message: it makes `version` of `base`, or of nothing (None): then it is an anchor.

    `had` and `made` are the fingerprints of both, `size` its bytes, `checksum` that of its bytes.
    """

    version: int
    base: int | None
    had: bytes
    made: bytes
    size: int
    checksum: bytes

    @property
    def is_anchor(self) -> bool:
        return self.base is None

    @property
    def key(self) -> str:
        """The name by which readers ask for it, and of its file."""
        return f"{self.version:012d}" + ("" if self.base is None else f"-{self.base:012d}")


class Chain:
    """All messages that a publisher has. Each version has a delta to the one before, or an anchor.

    `keep` is how many deltas readers that lag find. There is an anchor at least as late as the
    version before these, so memory is bounded, and every reader finds a way.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._entries: list[Entry] = []

    def restore(self, entries: Iterable[Entry]) -> list[Entry]:
        """Take what was kept of a chain; returns what is of no use, as messages between are gone.

        That is all but the latest run of versions that an anchor makes.
        """
        runs: list[list[Entry]] = []
        for entry in sorted(entries, key=lambda each: (each.version, each.is_anchor)):
            if not runs or not follows(runs[-1][-1], entry):
                runs.append([])
            runs[-1].append(entry)
        whole = [run for run in runs if any(each.is_anchor for each in run)]
        self._entries = whole[-1] if whole else []
        return [each for run in runs if run is not self._entries for each in run]

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    @property
    def head(self) -> Entry | None:
        """A message that makes the newest version."""
        return self._entries[-1] if self._entries else None

    def add(self, entry: Entry) -> None:
        """Take a message of a new version, or an anchor of the newest.

        Raises MismatchError where that would fork the chain.
        """
        head = self.head
        if head and entry.is_anchor and entry.version == head.version:
            if entry.made != head.made:
                raise MismatchError(f"version {entry.version} is there with other bits")
            self._entries.append(entry)
            return
        if head and entry.version <= head.version:
            raise MismatchError(
                f"version {entry.version} is not newer than {head.version}, the newest of the chain"
            )
        if not (follows(head, entry) if head else entry.is_anchor):
            raise MismatchError(f"version {entry.version} is not made of the newest of the chain")
        self._entries.append(entry)

    def wants_anchor(self) -> bool:
        """Whether deltas since the last anchor have as many bytes as it, or are as many as kept."""
        since = self._since_anchor()
        anchors = [each.size for each in self._entries if each.is_anchor]
        return len(since) >= self._keep or sum(each.size for each in since) >= anchors[-1]

    def _since_anchor(self) -> list[Entry]:
        newest = max(each.version for each in self._entries if each.is_anchor)
        return [each for each in self._entries if each.version > newest]

    def prune(self) -> list[Entry]:
        """Drop what no reader needs that lags by `keep` versions or less; returns it.

        Older deltas stay as long as all together have no more bytes than the newest anchor: they
        spare late readers the whole version.
        """
        anchor = max(
            (each for each in self._entries if each.is_anchor), key=lambda each: each.version
        )
        cut, total = anchor.version, 0
        deltas = [each for each in self._entries if not each.is_anchor]
        for lag, each in enumerate(reversed(deltas[-_KEPT_TIMES * self._keep :]), 1):
            total += each.size
            if lag > self._keep and total > anchor.size:
                break
            cut = min(cut, self._starts(each))
        dropped = [each for each in self._entries if self._starts(each) < cut]
        self._entries = [each for each in self._entries if self._starts(each) >= cut]
        return dropped

    @staticmethod
    def _starts(entry: Entry) -> int:
        return entry.version if entry.base is None else entry.base

    def version_of(self, fingerprint: bytes) -> int | None:
        """The newest version with this fingerprint that the chain tells of."""
        return max(self._versions_of(fingerprint), default=None)

    def _versions_of(self, fingerprint: bytes) -> set[int]:
        made = {each.version for each in self._entries if each.made == fingerprint}
        had = {each.base for each in self._entries if each.had == fingerprint}
        return made | {each for each in had if each is not None}

    def path(self, have: bytes | None, want: int) -> list[Entry] | None:
        """The messages of fewest bytes that make version `want` of what has the fingerprint `have`.

        None where there is no way: the version is not, or no longer, there.
        """
        starts = () if have is None else self._versions_of(have)
        best: dict[int, tuple[int, list[Entry]]] = {start: (0, []) for start in starts}
        for entry in self._entries:
            before = (0, []) if entry.base is None else best.get(entry.base)
            if before is None or entry.version > want:
                continue
            cost = before[0] + entry.size
            if entry.version not in best or cost < best[entry.version][0]:
                best[entry.version] = (cost, [*before[1], entry])
        found = best.get(want)
        return None if found is None else found[1]


def follows(before: Entry, entry: Entry) -> bool:
    """Whether `entry` is a message of the next version, or an anchor of the same one."""
    if entry.is_anchor:
        return (entry.version, entry.made) == (before.version, before.made)
    return (entry.base, entry.had) == (before.version, before.made)
