"""Makes a staged version ready: all new bits are found and checked before the first one is written.

A chunk is copied, the codes of all messages are applied to the copy, and what differs is kept. So a
reader that lags writes each chunk once, and memory is a few chunks beside what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparsewire._core import DELTA_CHUNK as CHUNK
from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.readers.home import Home
from sparsewire.weights.versions.chunks import apply_chunk
from sparsewire.weights.versions.coding import Coder, checksum_of_pieces
from sparsewire.weights.versions.fingerprint import fingerprint
from sparsewire.weights.versions.message import Delta, TensorDelta, tensor_changes
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.prepared import Change, change_between, change_of, write_change
from sparsewire.weights.versions.safetensors import Span
from sparsewire.weights.versions.state import Make
from sparsewire.weights.versions.tensors import FORMATS, Bytes, Tensor

_SAME = b"\0"
# A tensor of more than this share of all chunks is cut, so that no processor is left with it.
_LARGE_SHARE = 64


@dataclass
class Prepared:
    """What makes a home the next version: changes of tensors' chunks, tensors that are new, names
    that are gone, and the checksums of what changed."""

    changes: dict[str, list[Change | None]] = field(default_factory=dict)
    fresh: dict[str, Tensor] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    sums: dict[str, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside the messages."""
        changes = (change for each in self.changes.values() for change in each if change)
        new = sum(len(tensor.data) for tensor in self.fresh.values())
        return new + sum(map(len, changes))

    def add(self, other: Prepared) -> None:
        """Take in what was found of another tensor."""
        self.changes |= other.changes
        self.fresh |= other.fresh
        self.removed += other.removed
        self.sums |= other.sums

    def write(self, home: Home, coder: Coder) -> None:
        """Make the home the version, in place."""
        self.write_changes(home, coder)
        for name, tensor in self.fresh.items():
            home.add(name, tensor)
        for name in self.removed:
            home.remove(name)

    def write_changes(self, home: Home, coder: Coder) -> None:
        """Write the chunks that change, on all processors, to tensors that the home has."""
        pieces = (
            (change, chunk, tensor.format)
            for name, changes in self.changes.items()
            if (tensor := home.tensors.get(name))
            for change, chunk in zip(changes, tensor.chunks(), strict=True)
            if change
        )
        for _ in coder.ahead(lambda piece: write_change(*piece), pieces):
            pass


def prepare(
    deltas: Sequence[Delta], home: Home, sums: Mapping[str, bytes], coder: Coder, make: Make
) -> Prepared:
    """What `deltas`, each the base of the next, make of `home`, whose checksums are `sums`.

    Raises MismatchError where the home cannot take it or is not their base, InputError where its
    tensors lie elsewhere by now, DataError where a message is damaged, and OSError where there is
    no room. The home stays as it is.
    """
    last = deltas[-1]
    spans = last.spans()
    home.check(spans)
    home.check_files(last.headers)
    home.check_places()
    # Names with a checksum here are those that the publisher told of before.
    gone = {*sums, *(name for delta in deltas for name in delta.removed)} - spans.keys()
    prepared = Prepared(removed=[name for name in home.tensors if name in gone])
    tensors = [
        _InHome(name, span, changes, home, last.aliases)
        for name, span in spans.items()
        if (changes := tensor_changes(name, deltas))
    ]
    for found in _each(tensors, coder, make):
        prepared.add(found)
    known = {name: prepared.sums.get(name) or sums.get(name, b"") for name in spans}
    if fingerprint(spans, known) != last.fresh:
        raise _wrong_base(last, "tensors that it leaves as they are have other bits here")
    _check_tied(home, known)
    return prepared


def _check_tied(home: Home, sums: Mapping[str, bytes]) -> None:
    """Raise MismatchError where the home ties tensors whose bits differ at the publisher."""
    first: dict[tuple[int, int], str] = {}
    for name in sums.keys() & home.tensors.keys():
        other = first.setdefault(_place(home.tensors[name]), name)
        if sums[other] != sums[name]:
            raise MismatchError(
                f"{shown(name)} and {shown(other)} are one tensor here, and the publisher has "
                "other bits for each: read into a model that does not tie them"
            )


def _each(tensors: Sequence[_InHome], coder: Coder, make: Make) -> Iterator[Prepared]:
    """Prepare all tensors: large ones chunk by chunk on all processors, of others each on one.

    There the bytes that a checksum is of are near, and nobody waits between tensors.
    """
    large = sum(tensor.chunk_count for tensor in tensors) // _LARGE_SHARE
    for tensor in tensors:
        if tensor.chunk_count > max(large, 1):
            yield tensor.prepare(coder.ahead, make)
    others = (tensor for tensor in tensors if tensor.chunk_count <= max(large, 1))
    yield from coder.ahead(lambda tensor: tensor.prepare(map, make), others)


def _wrong_base(delta: Delta, why: str) -> MismatchError:
    return MismatchError(
        f"these weights are not the base of version {delta.version}, which is version "
        f"{delta.base_version or 'none'}: {why}. Take the whole version, by a new Receiver"
    )


class _Step(NamedTuple):
    """One chunk: its base, or None for zeros, its codes, and the chunks to make the new one."""

    base: Bytes | None
    size: int
    codes: tuple[memoryview, ...]
    targets: list[Bytes]


class _Done(NamedTuple):
    fresh: Bytes
    changes: list[Change | None]


Each = Callable[[Callable[[_Step], _Done], Iterable[_Step]], Iterable[_Done]]
"""`map`, or what does its work on several processors."""


class _InHome:
    """One tensor that changes, and where the home has it: perhaps several times, or not yet."""

    def __init__(
        self,
        name: str,
        span: Span,
        changes: Sequence[TensorDelta],
        home: Home,
        aliases: Mapping[str, str],
    ) -> None:
        self._name = name
        self._span = span
        self._changes = changes
        own = [name, *(alias for alias, of in aliases.items() if of == name)]
        # Names of tied tensors share their memory, which is written once.
        places = {_place(home.tensors[each]): each for each in own if each in home.tensors}
        self._targets = {each: home.tensors[each] for each in places.values()}
        self._base = home.tensors.get(name) or next(iter(self._targets.values()), None)

    @property
    def chunk_count(self) -> int:
        return len(self._changes[-1].sizes)

    def prepare(self, each: Each, make: Make) -> Prepared:
        """Find and check the new bits. Raises MismatchError, DataError and OSError."""
        nbytes = self._span.end - self._span.begin
        new = None if self._targets else Tensor(self._span.dtype, self._span.shape, make(nbytes))
        into = iter(new.chunks()) if new else None
        lists: list[list[Change | None]] = [[] for _ in self._targets]
        total = checksum_of_pieces()
        for done in each(self._do, self._steps()):
            total.update(done.fresh.data)
            for own, change in zip(lists, done.changes, strict=True):
                own.append(change)
            if into:
                next(into)[:] = done.fresh
        self._check(bytes(total.digest()))
        return Prepared(
            dict(zip(self._targets, lists, strict=True)),
            {self._name: new} if new else {},
            sums={self._name: self._changes[-1].fresh},
        )

    def _check(self, found: bytes) -> None:
        wanted = self._changes[-1].fresh
        if found != wanted:
            raise MismatchError(
                f"{self._name} has other bits here than at the publisher: they come out with the "
                f"checksum {found.hex()}, and {wanted.hex()} is wanted. Take the whole version, by "
                "a new Receiver"
            )

    def _steps(self) -> Iterator[_Step]:
        like = self._base or Tensor(self._span.dtype, self._span.shape, np.empty(0, np.uint8))
        size = like.format.width
        is_new = self._changes[0].is_new or self._base is None
        all_codes = zip(*(change.codes() for change in self._changes), strict=True)
        targets = [list(tensor.chunks()) for tensor in self._targets.values()]
        bases = list(self._base.chunks()) if self._base else []
        for number, codes in enumerate(all_codes):
            elements = min(CHUNK, like.elements - number * CHUNK)
            base = None if is_new else bases[number]
            yield _Step(base, elements * size, codes, [each[number] for each in targets])

    def _do(self, step: _Step) -> _Done:
        form = FORMATS[self._span.dtype]
        if step.base is not None and all(code == _SAME for code in step.codes):
            fresh = step.base
        elif step.base is not None and len(step.codes) == 1:
            # The copy comes first: it brings the chunk near, of which few elements are read.
            fresh = step.base.copy()
            change = change_of(step.codes[0], fresh, form)
            write_change(change, fresh, form)
            if len(step.targets) == 1:
                return _Done(fresh, [change])
        else:
            fresh = np.zeros(step.size, np.uint8) if step.base is None else step.base.copy()
            for code in step.codes:
                if not apply_chunk(code, fresh, form.width, form.floating):
                    raise DataError(f"the message is damaged: a code of {self._name} is none")
        return _Done(fresh, [change_between(chunk, fresh, form) for chunk in step.targets])


def _place(tensor: Tensor) -> tuple[int, int]:
    """Where its memory is, to tell tied tensors."""
    return (tensor.data.ctypes.data, len(tensor.data)) if len(tensor.data) else (id(tensor), 0)
