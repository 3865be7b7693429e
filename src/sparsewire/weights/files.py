"""Deltas between versions on disk: made of two, and applied to one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sparsewire.errors import DataError, MismatchError
from sparsewire.weights.atomic import replacing
from sparsewire.weights.coding import Coder
from sparsewire.weights.delta_file import Delta, TensorDelta
from sparsewire.weights.snapshot import Snapshot
from sparsewire.weights.tensors import Bytes, Tensor

Move = Callable[[int], None]
"""Told the bytes of each tensor that is done."""


def diff(old: Snapshot, new: Snapshot, version: str, base_version: str, move: Move) -> Delta:
    """The delta from one version to the next; raises DataError for a shape that changed."""
    delta = Delta(version, base_version, {name: file.header for name, file in new.files.items()})
    delta.removed = [name for name in old if new.get(name) is None]
    delta.texts = new.texts_beside(old)
    with Coder() as coder:
        for name in new:
            fresh, base = new.get(name), old.get(name)
            assert fresh
            _check_alike(name, base, fresh)
            coded = coder.encode(base, fresh)
            sums = coder.checksums([base, fresh] if base else [fresh])
            before = next(sums) if base else b""
            after = next(sums)
            if base and not coded.changed:
                delta.kept[name] = after
            else:
                delta.tensors[name] = TensorDelta(before, after, coded.changed, coded.codes)
            move(len(fresh.data))
    return delta


def _check_alike(name: str, base: Tensor | None, fresh: Tensor) -> None:
    if base and (base.dtype, base.shape) != (fresh.dtype, fresh.shape):
        raise DataError(
            f"{name} has dtype {base.dtype} and shape {list(base.shape)} in the old version, and "
            f"{fresh.dtype} and {list(fresh.shape)} in the new one: a delta keeps both. Send the "
            "new version whole, or give the tensor another name"
        )


def apply(base: Snapshot, delta: Delta, target: Path, move: Move) -> None:
    """Write the new version to `target`, which is there as a whole in the end, or not at all.

    Raises MismatchError for another base than the delta's, DataError, ProtocolError and OSError.
    """
    _check_target(base, delta, target)
    others = base.others()
    with Coder() as coder, replacing(target) as folder:
        _check_base(base, delta, coder)
        made = folder / "made"
        made.mkdir()
        for name, header in delta.headers.items():
            tensors = _made(made / name, header.raw, header.data_bytes)
            for tensor, span in header.spans.items():
                _make(tensor, span.of(tensors), base, delta, coder)
                move(span.end - span.begin)
        for other in others:
            if not (made / other.name).exists():
                (shutil.copytree if other.is_dir() else shutil.copy2)(other, made / other.name)
        for name, text in delta.texts.items():
            (made / name).unlink(missing_ok=True)
            (made / name).write_bytes(text)
        os.replace(made if base.is_directory else next(made.iterdir()), target)


def _check_target(base: Snapshot, delta: Delta, target: Path) -> None:
    if not base.is_directory:
        if len(delta.headers) != 1 or delta.texts:
            raise DataError("the delta is of a directory, and the base is a file")
        return
    if os.path.lexists(target):
        raise DataError(f"{target} is there already: name a directory that is not")
    if target.resolve().is_relative_to(base.path.resolve()):
        raise DataError(f"{target} is inside of the base: name a directory elsewhere")


def _check_base(base: Snapshot, delta: Delta, coder: Coder) -> None:
    for name, change in delta.tensors.items():
        if not change.base and base.get(name):
            raise MismatchError(f"{base.path} has {name} already, which this delta adds")
    wanted = {name: each.base for name, each in delta.tensors.items() if each.base} | delta.kept
    tensors = {name: tensor for name in wanted if (tensor := base.get(name))}
    sums = dict(zip(tensors, coder.checksums(tensors.values()), strict=True))
    for name, each in wanted.items():
        if sums.get(name) != each:
            has = f"its checksum is {sums[name].hex()}" if name in sums else "it is not there"
            raise MismatchError(
                f"{base.path} is not the base of this delta, version {delta.base_version!r}: "
                f"{name} should have the checksum {each.hex()}, and {has}. Apply the deltas before "
                "this one first, or take the whole version"
            )


def _make(name: str, fresh: Tensor, base: Snapshot, delta: Delta, coder: Coder) -> None:
    """Write one tensor of the new version, and check it."""
    before, change = base.get(name), delta.tensors.get(name)
    if change is None and name not in delta.kept:
        raise DataError(f"the delta does not tell of {name}")
    if change is None or change.base:
        assert before
        _check_alike(name, before, fresh)
        fresh.data[:] = before.data
    if change is None:
        return
    coder.apply(change.codes, fresh)
    if next(coder.checksums([fresh])) != change.fresh:
        raise DataError(f"{name} has come out with another checksum: the delta is damaged")


def _made(path: Path, raw: bytes, data_bytes: int) -> Bytes:
    """The data of a new file with this header, zeros, as memory that is the file."""
    with path.open("wb") as file:
        file.write(raw)
        file.flush()
        if data_bytes:
            # A write to mapped memory that finds the disk full would kill the process.
            os.posix_fallocate(file.fileno(), 0, len(raw) + data_bytes)
    if not data_bytes:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r+", offset=len(raw), shape=(data_bytes,))
