"""What appears under its name is on the disk before, so that a power cut leaves old or new."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparsewire.weights.versions.atomic import put, replacing


def model(folder: Path) -> Path:
    (folder / "model" / "deeper").mkdir(parents=True)
    (folder / "model" / "weights").write_text("new")
    (folder / "model" / "deeper" / "words").write_text("words")
    (folder / "model" / "elsewhere").symlink_to("nowhere")
    return folder / "model"


def test_all_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    rename = os.replace

    def sync(number: int) -> None:
        events.append(Path(f"/proc/self/fd/{number}").resolve().name)

    def replace(made: Path, target: Path) -> None:
        events.append("replace")
        rename(made, target)

    monkeypatch.setattr("os.fsync", sync)
    monkeypatch.setattr("os.replace", replace)
    with replacing(tmp_path / "target") as folder:
        put(model(folder), tmp_path / "target")
    at = events.index("replace")
    assert sorted(events[:at]) == ["deeper", "model", "weights", "words"]
    assert events[at + 1 :] == [tmp_path.name]
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def failing(code: int, where: Callable[[Path], bool]) -> Callable[[int], None]:
    def sync(number: int) -> None:
        if where(Path(f"/proc/self/fd/{number}")):
            raise OSError(code, os.strerror(code))

    return sync


def test_what_cannot_be_synced_does_not_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    for code, where in ((errno.EIO, Path.is_file), (errno.EINVAL, Path.is_file)):
        monkeypatch.setattr("os.fsync", failing(code, where))
        with replacing(target) as folder:
            (folder / "made").write_text("new")
            with pytest.raises(OSError, match=os.strerror(code)):
                put(folder / "made", target)
        assert target.read_text() == "old"
    # A file system on top of an object store has nothing to sync in a folder.
    monkeypatch.setattr("os.fsync", failing(errno.EINVAL, Path.is_dir))
    with replacing(target) as folder:
        (folder / "made").write_text("new")
        put(folder / "made", target)
    assert target.read_text() == "new"
