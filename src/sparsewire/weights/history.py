"""What a publisher has made: the last version, and the message of each version before it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sparsewire.errors import DataError, InputError, MismatchError
from sparsewire.sparse_vector import SparseVector
from sparsewire.weights.shards.placements import own_weights
from sparsewire.weights.sync.chain import Chain, Entry, check_version
from sparsewire.weights.sync.store import Store
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.fingerprint import fingerprint
from sparsewire.weights.versions.message import Delta, Writer, parse
from sparsewire.weights.versions.named import distinct
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.rows import with_rows
from sparsewire.weights.versions.safetensors import Header, header_of
from sparsewire.weights.versions.snapshot import SUFFIX, Snapshot
from sparsewire.weights.versions.state import State
from sparsewire.weights.versions.tensors import Tensor, check_alike

_log = logging.getLogger(__name__)

_FILE = "model.safetensors"
_UNKNOWN = b""

T = TypeVar("T")


class Message(NamedTuple):
    """A message that was written, what it says, how many elements it changes, and memory for the
    tensors that are new."""

    entry: Entry
    memory: memoryview
    delta: Delta
    changed: int
    room: Mapping[str, Tensor]


@dataclass
class Layout:
    """What a version has beside tensors: its files' headers, second names, and JSON files."""

    headers: dict[str, Header] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)

    def follow(self, delta: Delta) -> None:
        self.headers = dict(delta.headers)
        self.aliases = dict(delta.aliases)
        self.texts |= delta.texts


class Source:
    """What is published: its tensors in order, each to be read once, and its layout."""

    def __init__(self, weights: Any, mesh: Any = None) -> None:
        """Of tensors that are divided among ranks, those of `mesh`, the parts of this rank.

        Raises InputError for what has no tensors, DataError for files that are none, or for parts
        that cannot be told.
        """
        self.layout = Layout()
        self.tensors: Iterator[tuple[str, Tensor | SparseVector]]
        if isinstance(weights, (str, os.PathLike)):
            weights = Snapshot(Path(weights))
        if isinstance(weights, Snapshot):
            self.layout.headers = {
                name if name.endswith(SUFFIX) else _FILE: file.header
                for name, file in weights.files.items()
            }
            self.layout.texts = weights.texts()
            self.tensors = iter(weights.tensors.items())
        else:
            self.tensors, self.layout.aliases = distinct(own_weights(weights, mesh))
            if isinstance(weights, Iterator) and mesh is None:
                self.tensors = _some(self.tensors)


def _some(tensors: Iterator[T]) -> Iterator[T]:
    """The same; raises InputError if there are none, lest readers lose all that they have."""
    first = next(tensors, None)
    if first is None:
        raise InputError(
            "the iterator has no tensors: it may have been used up already, so give a new one"
        )
    yield first
    yield from tensors


class History:
    """Writes messages of new versions. One thread uses it at a time, and no network is here."""

    def __init__(self, store: Store, chain: Chain, coder: Coder) -> None:
        """`chain` has what the store has; others add to it what is written here."""
        self._store = store
        self._chain = chain
        self._coder = coder
        self._state = State({}, store.spool.memory)
        self._layout = Layout()
        self._made: bytes | None = None
        """The fingerprint of the version that the state is; None of none."""

    @property
    def names(self) -> list[str]:
        """Of the tensors of the last version."""
        return list(self._state.tensors)

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self._state.tensors.values())

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._state.tensors.values())

    def write(self, number: int, source: Source, *, complete: bool) -> Message:
        """Write the message of a version over the last one; `follow` makes the last one this one.

        If it raises, all is as before.
        """
        self._settle()
        head = self._chain.head
        delta = Delta(str(number), str(head.version) if head else "", {})
        delta.base = head.made if head else b""
        file = self._store.spool.file()
        try:
            writer = Writer(file)
            changed = self._compare(writer, delta, source, complete=complete)
            whole = writer.finish(delta)
            entry = Entry(
                number, head.version if head else None, delta.base, delta.fresh, writer.size, whole
            )
            memory = self._store.keep(file, entry)
        except BaseException:
            self._store.spool.drop(file)
            raise
        return self._read_again(entry, memory, changed)

    def _settle(self) -> None:
        """Forget a message that never came into the chain, and make the state the chain's newest
        version if it did not follow: Ctrl-C may fall in between."""
        self._store.keep_only(self._chain.entries)
        head = self._chain.head
        if self._made != (head.made if head else None):
            self.rebuild()

    def _compare(self, writer: Writer, delta: Delta, source: Source, *, complete: bool) -> int:
        """Write the codes of all tensors, and describe the version; returns what changed."""
        seen: dict[str, Tensor] = {} if complete else dict(self._state.tensors)
        met: set[str] = set()
        sums = dict(self._state.sums)
        changed = 0
        for name, given in source.tensors:
            if name in met:
                raise InputError(f"{shown(name)} is there twice: each name has one tensor")
            met.add(name)
            fresh = self._whole(name, given)
            changed += self._add(writer, name, fresh, sums)
            # Only what it is like: a tensor that a generator made may go now.
            seen[name] = fresh._replace(data=fresh.data[:0].copy())
        self._describe(delta, source.layout, seen, complete=complete)
        delta.fresh = fingerprint(seen, sums)
        return changed

    def _whole(self, name: str, given: Tensor | SparseVector) -> Tensor:
        if isinstance(given, SparseVector):
            return with_rows(name, self._state.tensors.get(name), given)
        return given

    def _add(self, writer: Writer, name: str, fresh: Tensor, sums: dict[str, bytes]) -> int:
        base = self._state.tensors.get(name)
        if base:
            check_alike(name, base, fresh)
        summed = self._coder.checksum(fresh)
        codes = self._coder.encode(base, fresh)
        changed = writer.add(name, codes, summed.result, is_new=base is None)
        sums[name] = summed.result()
        return changed

    def _describe(
        self, delta: Delta, layout: Layout, seen: dict[str, Tensor], *, complete: bool
    ) -> None:
        has_files = complete and bool(layout.headers)
        delta.headers = layout.headers if has_files else {_FILE: header_of(seen)}
        delta.removed = [name for name in self._state.tensors if name not in seen]
        aliases = layout.aliases if complete else self._layout.aliases | layout.aliases
        delta.aliases = {
            alias: name for alias, name in aliases.items() if name in seen and alias not in seen
        }
        before = self._layout.texts
        delta.texts = {
            name: text for name, text in layout.texts.items() if before.get(name) != text
        }

    def _read_again(self, entry: Entry, memory: memoryview, changed: int) -> Message:
        """The message as readers get it, with room for its new tensors; dropped if that fails."""
        try:
            delta = parse(memory, entry.key)
            return Message(entry, memory, delta, changed, self._state.room(delta))
        except BaseException:
            self._store.drop([entry])
            raise

    def follow(self, message: Message) -> None:
        """Make the state the version of a message, by the very bytes that readers get.

        It may go on beside their way to readers. Raises DataError if no version can be made of the
        store's messages any more.
        """
        try:
            self._made = _UNKNOWN
            self._state.apply(message.delta, self._coder, message.room)
            self._layout.follow(message.delta)
            self._made = message.entry.made
        except BaseException as error:
            _log.warning("the last version is made anew from its messages: %s", error)
            self.rebuild()
            if not isinstance(error, Exception):
                raise

    def anchor(self) -> Message | None:
        """Write the whole last version, if deltas since the last such message have become many."""
        head = self._chain.head
        if not head or not self._chain.wants_anchor():
            return None
        self._settle()
        layout = self._layout
        delta = Delta(str(head.version), "", layout.headers, b"", head.made)
        delta.aliases, delta.texts = layout.aliases, layout.texts
        file = self._store.spool.file()
        try:
            writer = Writer(file)
            for name, tensor in self._state.tensors.items():
                known = partial(self._state.sums.__getitem__, name)
                writer.add(name, self._coder.encode(None, tensor), known, is_new=True)
            whole = writer.finish(delta)
            entry = Entry(head.version, None, b"", head.made, writer.size, whole)
            return Message(entry, self._store.keep(file, entry), delta, 0, {})
        except BaseException:
            self._store.spool.drop(file)
            raise

    def rebuild(self) -> None:
        """Make the state the newest version, from the messages of the store.

        Raises DataError if they do not make it.
        """
        self._state, self._layout = State({}, self._store.spool.memory), Layout()
        head = self._chain.head
        self._made = _UNKNOWN
        for entry in (self._chain.path(None, head.version) or []) if head else []:
            delta = parse(self._store.memory(entry), entry.key)
            self._state.apply(delta, self._coder, self._state.room(delta))
            self._layout.follow(delta)
        if head and self._state.fingerprint() != head.made:
            raise DataError(f"the messages of the store do not make version {head.version}")
        self._made = head.made if head else None

    def load(self) -> None:
        """Fill the chain with the messages of the store, and make the state its newest version."""
        if dropped := self._chain.restore(self._store.load()):
            _log.warning(
                "%d messages of the chain are of no use, as others between are gone: the newest "
                "version is %s",
                len(dropped),
                self._chain.head.version if self._chain.head else "none",
            )
            self._store.lose(max(each.version for each in dropped))
            self._store.drop(dropped)
        self.rebuild()


def check_number(chain: Chain, version: int | None, ahead: int | None, lost: int) -> int:
    """The number of the next version; raises InputError for no number, MismatchError for one that
    would fork the chain. `ahead` is the newest version of a reader that the chain has not, `lost`
    the newest one whose message was damaged."""
    newest = chain.head.version if chain.head else None
    number = version if version is not None else max(-1 if newest is None else newest, lost) + 1
    check_version(number)
    if newest is not None and number <= newest:
        raise MismatchError(
            f"version {number} is not newer than {newest}, the newest of the chain: versions only "
            "grow, or readers could not tell them apart"
        )
    if number <= lost:
        raise MismatchError(
            f"version {lost} was published, and its message was damaged in the directory: publish "
            f"as version={lost + 1} or above, so that no number stands for two versions"
        )
    if ahead is not None and number <= ahead:
        raise MismatchError(
            f"a reader has version {ahead}, which this publisher has not made: its directory is "
            f"older than its readers, or another publisher was here. Publish as version={ahead + 1}"
            " or above, so that no number stands for two versions"
        )
    return number
