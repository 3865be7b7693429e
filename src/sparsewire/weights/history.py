"""What a publisher has made: the last version, and the message of each version before it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from sparsewire.errors import DataError, InputError
from sparsewire.sparse_vector import SparseVector
from sparsewire.weights.offer import FILE, Offer
from sparsewire.weights.sync.chain import Chain, Entry
from sparsewire.weights.sync.store import Store, entry_of
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.comparing import compare
from sparsewire.weights.versions.fingerprint import fingerprint
from sparsewire.weights.versions.manifest import Manifest
from sparsewire.weights.versions.message import Delta, Writer, parse
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.rows import with_rows
from sparsewire.weights.versions.safetensors import header_of
from sparsewire.weights.versions.state import State
from sparsewire.weights.versions.tensors import Tensor

_log = logging.getLogger(__name__)

_UNKNOWN = b""


class Written(NamedTuple):
    """A message that was written, its bytes, how many elements it changes, what it says, and memory
    for the tensors that are new."""

    entry: Entry
    memory: memoryview
    changed: int
    delta: Delta
    room: Mapping[str, Tensor]


class History:
    """Writes messages of new versions. One thread uses it at a time, and no network is here."""

    def __init__(self, store: Store, chain: Chain, coder: Coder) -> None:
        """`chain` has what the store has; others add to it what is written here."""
        self._store = store
        self._chain = chain
        self._coder = coder
        self._state = State({}, store.spool.memory)
        self._manifest = Manifest()
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

    def write(self, number: int, offer: Offer, *, complete: bool) -> Written:
        """Write the message of a version over the last one; `follow` makes the last one this one.

        If it raises, all is as before.
        """
        self._settle()
        head = self._chain.head
        delta = Delta(str(number), str(head.version) if head else "", {})
        delta.base = head.made if head else b""
        written = self._write(
            delta, lambda writer: self._compare(writer, delta, offer, complete=complete)
        )
        return self._read_again(written)

    def anchor(self) -> Written | None:
        """Write the whole last version, if deltas since the last such message have become many."""
        head = self._chain.head
        if not head or not self._chain.wants_anchor():
            return None
        self._settle()
        delta = Delta(str(head.version), "", self._manifest.headers, b"", head.made)
        delta.aliases, delta.texts = self._manifest.aliases, self._manifest.texts
        return self._write(delta, self._add_all)

    def _write(self, delta: Delta, add: Callable[[Writer], int]) -> Written:
        """Write and keep a message, whose tensors `add` writes; if it raises, nothing is left."""
        file = self._store.spool.file()
        try:
            writer = Writer(file)
            changed = add(writer)
            checksum = writer.finish(delta)
            entry = entry_of(delta, writer.size, checksum)
            return Written(entry, self._store.keep(file, entry), changed, delta, {})
        except BaseException:
            self._store.spool.drop(file)
            raise

    def _add_all(self, writer: Writer) -> int:
        for name, tensor in self._state.tensors.items():
            known = partial(self._state.sums.__getitem__, name)
            writer.add(name, self._coder.encode(None, tensor), known, is_new=True)
        return 0

    def _settle(self) -> None:
        """Forget a message that never came into the chain, and make the state the chain's newest
        version if it did not follow: Ctrl-C may fall in between."""
        self._store.keep_only(self._chain.entries)
        head = self._chain.head
        if self._made != (head.made if head else None):
            self.rebuild()

    def _compare(self, writer: Writer, delta: Delta, offer: Offer, *, complete: bool) -> int:
        """Write the codes of all tensors, and describe the version; returns what changed."""
        seen: dict[str, Tensor] = {} if complete else dict(self._state.tensors)
        met: set[str] = set()
        sums = dict(self._state.sums)
        changed = 0
        for name, given in offer.tensors:
            if name in met:
                raise InputError(f"{shown(name)} is there twice: each name has one tensor")
            met.add(name)
            fresh = self._whole(name, given)
            base = self._state.tensors.get(name)
            compared = compare(name, base, fresh, self._coder, writer)
            changed += compared.changed
            sums[name] = compared.checksum
            # Only what it is like: a tensor that a generator made may go now.
            seen[name] = fresh._replace(data=fresh.data[:0].copy())
        self._describe(delta, offer.manifest, seen, complete=complete)
        delta.fresh = fingerprint(seen, sums)
        return changed

    def _whole(self, name: str, given: Tensor | SparseVector) -> Tensor:
        if isinstance(given, SparseVector):
            return with_rows(name, self._state.tensors.get(name), given)
        return given

    def _describe(
        self, delta: Delta, manifest: Manifest, seen: dict[str, Tensor], *, complete: bool
    ) -> None:
        has_files = complete and bool(manifest.headers)
        delta.headers = manifest.headers if has_files else {FILE: header_of(seen)}
        delta.removed = [name for name in self._state.tensors if name not in seen]
        aliases = manifest.aliases if complete else self._manifest.aliases | manifest.aliases
        delta.aliases = {
            alias: name for alias, name in aliases.items() if name in seen and alias not in seen
        }
        before = self._manifest.texts
        delta.texts = {
            name: text for name, text in manifest.texts.items() if before.get(name) != text
        }

    def _read_again(self, written: Written) -> Written:
        """The message as readers get it, with room for its new tensors; dropped if that fails."""
        try:
            delta = parse(written.memory, written.entry.key)
            return written._replace(delta=delta, room=self._state.room(delta))
        except BaseException:
            self._store.drop([written.entry])
            raise

    def follow(self, written: Written) -> None:
        """Make the state the version of a message, by the very bytes that readers get.

        It may go on beside their way to readers. Raises DataError if no version can be made of the
        store's messages any more.
        """
        try:
            self._made = _UNKNOWN
            self._state.apply(written.delta, self._coder, written.room)
            self._manifest.follow(written.delta)
            self._made = written.entry.made
        except BaseException as error:
            _log.warning("the last version is made anew from its messages: %s", error)
            self.rebuild()
            if not isinstance(error, Exception):
                raise

    def rebuild(self) -> None:
        """Make the state the newest version, from the messages of the store.

        Raises DataError if they do not make it.
        """
        self._state, self._manifest = State({}, self._store.spool.memory), Manifest()
        head = self._chain.head
        self._made = _UNKNOWN
        for entry in (self._chain.path(None, head.version) or []) if head else []:
            delta = parse(self._store.memory(entry), entry.key)
            self._state.apply(delta, self._coder, self._state.room(delta))
            self._manifest.follow(delta)
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
