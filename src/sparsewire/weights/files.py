"""Deltas between versions on disk: made of two, and applied to one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.versions.atomic import put, replacing
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.comparing import compare
from sparsewire.weights.versions.fingerprint import fingerprint
from sparsewire.weights.versions.message import Delta, Writer, read
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import create
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Tensor, check_alike

Move = Callable[[int], None]
"""Told the bytes of each tensor that is done."""


def diff(
    old: Snapshot, new: Snapshot, version: str, base_version: str, target: Path, move: Move
) -> Delta:
    """Write the delta from one version to the next to `target`, and return it.

    Raises MismatchError for a dtype or shape that changed, and OSError.
    """
    delta = Delta(version, base_version, {name: file.header for name, file in new.files.items()})
    delta.removed = [name for name in old if new.get(name) is None]
    delta.texts = new.texts_beside(old)
    with Coder() as coder, replacing(target) as folder:
        made = folder / target.name
        with made.open("wb") as file:
            writer = Writer(file)
            sums: dict[str, bytes] = {}
            for name, fresh in new.tensors.items():
                sums[name] = compare(name, old.get(name), fresh, coder, writer).checksum
                move(len(fresh.data))
            delta.base, delta.fresh = _fingerprint(old, coder), fingerprint(new.tensors, sums)
            writer.finish(delta)
        put(made, target)
    return read(target)


def _fingerprint(version: Snapshot, coder: Coder) -> bytes:
    sums = coder.checksums(version.tensors.values())
    return fingerprint(version.tensors, dict(zip(version, sums, strict=True)))


def apply(base: Snapshot, delta: Delta, target: Path, move: Move) -> None:
    """Write the new version to `target`, which is there as a whole in the end, or not at all.

    Raises MismatchError for another base than the delta's, DataError, ProtocolError and OSError.
    """
    _check_kind(base, delta)
    base.check_target(target)
    others = base.others()
    with Coder() as coder, replacing(target) as folder:
        _check_base(base, delta, coder)
        made = folder / "made"
        made.mkdir()
        for name, header in delta.headers.items():
            tensors = create(made / name, header)
            for tensor, span in header.spans.items():
                _make(tensor, span.of(tensors), base, delta, coder)
                move(span.end - span.begin)
        for other in others:
            if not (made / other.name).exists():
                (shutil.copytree if other.is_dir() else shutil.copy2)(other, made / other.name)
        for name, text in delta.texts.items():
            (made / name).unlink(missing_ok=True)
            (made / name).write_bytes(text)
        put(made if base.is_directory else next(made.iterdir()), target)


def _check_kind(base: Snapshot, delta: Delta) -> None:
    if not base.is_directory and (len(delta.headers) != 1 or delta.texts):
        raise DataError("the delta is of a directory, and the base is a file")


def _check_base(base: Snapshot, delta: Delta, coder: Coder) -> None:
    if (found := _fingerprint(base, coder)) != delta.base:
        raise MismatchError(
            f"{shown(base.path)} is not the base of this delta, version {delta.base_version!r}: "
            f"its fingerprint is {found.hex()}, and {delta.base.hex()} is wanted. Apply the deltas "
            "before this one first, or take the whole version"
        )


def _make(name: str, fresh: Tensor, base: Snapshot, delta: Delta, coder: Coder) -> None:
    """Write one tensor of the new version, and check it."""
    before, change = base.get(name), delta.tensors.get(name)
    if not change or not change.is_new:
        if not before:
            raise DataError(f"the delta does not tell of {shown(name)}")
        check_alike(name, before, fresh)
        fresh.data[:] = before.data
    if not change:
        return
    coder.apply(change.codes(), fresh)
    if coder.checksum(fresh).result() != change.fresh:
        raise DataError(f"{shown(name)} has come out with another checksum: the delta is damaged")
