"""Versions in directories, applied to a model: on their base only, in order, and as a whole."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from plain_directories import (
    applied,
    data_of,
    directory,
    header_and_tensors,
    invoke,
    model,
    moved,
    safetensors,
    series,
    stored,
    tensors_of,
)

from sparsewire.errors import MismatchError
from sparsewire.weights.directories import applying
from sparsewire.weights.directories.index import NAME
from sparsewire.weights.directories.mark import version_of
from sparsewire.weights.versions.snapshot import Snapshot


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_another_base_is_refused_before_anything_appears(tmp_path: Path, encoding: str) -> None:
    before, after = model(), moved(model())
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), encoding=encoding)
    other = directory(tmp_path / "other", model(1))
    with pytest.raises(MismatchError, match=r"comes out of .* with another checksum"):
        applied(other, [delta], tmp_path / "made")
    less = dict(before)
    del less["scalar"]
    with pytest.raises(MismatchError, match="has no tensor scalar"):
        applied(directory(tmp_path / "less", less), [delta], tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "less", "other"]
    assert tensors_of(other) == data_of(model(1))


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_no_version_is_applied_twice(tmp_path: Path, encoding: str) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), encoding=encoding)
    once = applied(old, [delta], tmp_path / "once")
    with pytest.raises(MismatchError, match="has version 000001 already"):
        applied(once, [delta], tmp_path / "twice")
    # Nor where the base says nothing: a copy by other hands, and a file.
    single = safetensors(tmp_path / "new.safetensors", after)
    for base in (directory(tmp_path / "new", after), single):
        with pytest.raises(MismatchError, match="has version 000001 already"):
            applied(base, [delta], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_versions_in_another_order_are_refused(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 3)
    old, paths = directory(tmp_path / "old", states[0]), sorted((tmp_path / "versions").iterdir())
    with pytest.raises(MismatchError, match="builds on version 000002, and not on 000001"):
        applied(old, [paths[0], paths[2]], tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_long_chain_opens_one_version_at_a_time(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 40)
    opened: list[int] = []

    def move(nbytes: int) -> None:
        opened.append(len(list(Path("/proc/self/fd").iterdir())))

    before = len(list(Path("/proc/self/fd").iterdir()))
    old = Snapshot(directory(tmp_path / "old", states[0]))
    applying.apply(old, sorted((tmp_path / "versions").iterdir()), tmp_path / "made", move)
    assert tensors_of(tmp_path / "made") == data_of(states[40])
    assert max(opened) < before + 20


def test_a_whole_version_among_them_is_a_base(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4)
    versions = tmp_path / "versions"
    (versions / "weight_v000002").rename(tmp_path / "gone")
    whole = directory(versions / "weight_v000002", states[2])
    told = invoke("apply", whole, versions, "-o", tmp_path / "made")
    assert "version 000004, through 2 versions" in told.output
    assert tensors_of(tmp_path / "made") == data_of(states[4])


@pytest.mark.parametrize("where", [".weight_sync/state.json", NAME])
def test_a_base_that_says_another_version_is_refused(tmp_path: Path, where: str) -> None:
    before, after = model(), moved(model())
    old = directory(tmp_path / "old", before)
    (old / where).parent.mkdir(exist_ok=True)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after), base_version="000003")
    for said, fits in ((4, False), ("000004", False), ("3", True)):
        told: Any = {"version": said}
        (old / where).write_text(json.dumps({"metadata": told} if where == NAME else told))
        if fits:
            assert tensors_of(applied(old, [delta], tmp_path / "made")) == data_of(after)
            assert version_of(tmp_path / "made") == "000001"
            return
        with pytest.raises(MismatchError, match=f"on version 000003, and not on {said}"):
            applied(old, [delta], tmp_path / "made")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    before, after = model(), moved(model())
    base = safetensors(tmp_path / "model.safetensors", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after))
    applied(base, [delta], base)
    assert header_and_tensors(base)[1] == data_of(after)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = model(), moved(model())
    base = safetensors(tmp_path / "model.safetensors", before)
    delta = stored(tmp_path / "delta", data_of(before), data_of(after))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    told = invoke("apply", base, delta, "-o", base)
    assert told.exit_code == 1
    assert "No space left" in told.output
    assert header_and_tensors(base)[1] == data_of(before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "model.safetensors"]


def test_a_folder_of_versions_is_applied_in_order(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 12)
    old = directory(tmp_path / "old", states[0])
    told = invoke("apply", old, tmp_path / "versions", "-o", tmp_path / "made")
    assert told.exit_code == 0, told.output
    assert "made: version 000012, through 12 versions" in told.output
    assert tensors_of(tmp_path / "made") == data_of(states[12])
    # From where the base says that it is.
    single = tmp_path / "versions" / "weight_v000001"
    assert invoke("apply", old, single, "-o", tmp_path / "one").exit_code == 0
    told = invoke("apply", tmp_path / "one", tmp_path / "versions", "-o", tmp_path / "all")
    assert "all: version 000012, through 11 versions" in told.output
    assert tensors_of(tmp_path / "all") == data_of(states[12])
    # A mark is of this copy: what others make of it is another version.
    told = invoke("diff", tmp_path / "one", tmp_path / "all", "-o", tmp_path / "own")
    assert invoke("apply", tmp_path / "one", tmp_path / "own", "-o", tmp_path / "x").exit_code == 0
    assert version_of(tmp_path / "x") is None
    told = invoke("apply", tmp_path / "all", tmp_path / "versions", "-o", tmp_path / "more")
    assert told.exit_code == 1
    assert "builds on version 000012, which the base has" in told.output
    assert not (tmp_path / "more").exists()


def test_a_pruned_folder_needs_a_base_at_its_start(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4, first=3)
    old, second = directory(tmp_path / "old", states[0]), directory(tmp_path / "two", states[2])
    told = invoke("apply", old, tmp_path / "versions", "-o", tmp_path / "made")
    assert told.exit_code == 1
    assert "with another checksum" in told.output
    assert invoke("apply", second, tmp_path / "versions", "-o", tmp_path / "made").exit_code == 0
    assert tensors_of(tmp_path / "made") == data_of(states[4])


def test_what_is_no_chain_is_refused(tmp_path: Path) -> None:
    states = series(tmp_path / "versions", 4)
    old, versions = directory(tmp_path / "old", states[0]), tmp_path / "versions"
    gone = tmp_path / "gone"
    (versions / "weight_v000003").rename(gone)

    def refused() -> str:
        told = invoke("apply", old, versions, "-o", tmp_path / "made")
        assert told.exit_code == 1
        assert not (tmp_path / "made").exists()
        return " ".join(told.output.split())

    assert "are no chain: versions 0, 3 are built on and not there" in refused()
    (old / ".weight_sync").mkdir()
    (old / ".weight_sync" / "state.json").write_text('{"version": "000000"}')
    assert "has version 4, and a version between 000002 and it is missing" in refused()
    gone.rename(versions / "weight_v000003")
    stored(versions / "other", data_of(states[0]), data_of(states[1]))
    assert "build on the same version" in refused()
    for path in versions.iterdir():
        path.rename(tmp_path / f"moved-{path.name}")
    assert "stores no version's changes" in refused()
