"""The directory of a publisher: what is damaged or full there forks no chain, and loses no more."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from arrays import LIMIT_S, assert_alike, copy, step, weights

from sparsewire.errors import (
    DataError,
    InputError,
    MismatchError,
    Timeout,
)
from sparsewire.weights import Publisher, Receiver, as_numpy
from sparsewire.weights.sync import store
from sparsewire.weights.versions import spool
from sparsewire.weights.versions.state import State

NEWEST = "000000000003-000000000002.delta"


def filled(directory: Path, count: int = 4) -> dict[str, np.ndarray]:
    """A directory with versions, the newest of which is returned."""
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=directory) as publisher:
        for number in range(count):
            step(fresh, number)
            publisher.publish(fresh)
    return fresh


def check_served(publisher: Publisher, wanted: dict[str, np.ndarray]) -> None:
    """A new reader gets what was published last."""
    with Receiver(publisher.address) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().version == publisher.version
        found = {name: as_numpy(tensor) for name, tensor in receiver.tensors.items()}
        assert_alike(found, wanted)


def test_the_number_of_a_damaged_version_does_not_come_again(tmp_path: Path) -> None:
    """Readers may have it that this publisher has not heard of."""
    fresh = filled(tmp_path)
    newest = tmp_path / NEWEST
    newest.write_bytes(newest.read_bytes()[:-1])
    for _ in range(2):
        with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
            assert publisher.version == 2
            with pytest.raises(MismatchError, match=r"version 3 was published.*version=4"):
                publisher.publish(fresh, version=3)
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.publish(fresh).version == 4
        check_served(publisher, fresh)


def test_nor_do_those_behind_a_damaged_one(tmp_path: Path) -> None:
    fresh = filled(tmp_path)
    (tmp_path / "000000000002-000000000001.delta").write_bytes(b"")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 1
        assert publisher.publish(fresh).version == 4


def test_other_files_stay(tmp_path: Path) -> None:
    """A copy of a message is no message, and takes none with it."""
    fresh = filled(tmp_path)
    backup = shutil.copy(tmp_path / "000000000001-000000000000.delta", tmp_path / "a.delta")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 3
        check_served(publisher, fresh)
    assert Path(backup).exists()


def test_a_message_under_another_name(tmp_path: Path) -> None:
    filled(tmp_path)
    shutil.copy(tmp_path / NEWEST, tmp_path / "000000000004-000000000003.delta")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 3
        assert publisher.publish(weights()).version == 5


def test_small_files_that_are_damaged(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "chain").write_text("")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.status()["chain"]
    (tmp_path / "lost").write_text("x")
    for _ in range(2):
        with pytest.raises(DataError, match=r"lost in .* is damaged"):
            Publisher("127.0.0.1:0", directory=tmp_path)


def test_a_name_that_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not published is not there after a restart, or it would be a second next version."""
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish(fresh)
        step(fresh)
        with monkeypatch.context() as patch:
            patch.setattr(spool, "sync", failing)
            with pytest.raises(OSError, match="no disk"):
                publisher.publish(fresh)
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 0


def failing(_: Path) -> None:
    raise OSError("no disk")


@contextmanager
def files_up_to(nbytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("shape", [(8 << 20,), (64, 3)])
def test_no_room_for_a_version(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A message that is small, of a tensor that is large; or a message that is large."""
    fresh = weights()
    mine = copy(fresh)
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish(fresh)
        with Receiver(publisher.address, mine) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            other = weights(1) if shape == (64, 3) else fresh
            with files_up_to(1 << 20), pytest.raises(OSError, match="File too large"):
                publisher.publish(other | {"added": np.zeros(shape, np.int8)})
            assert publisher.version == 0
            assert len(os.listdir(tmp_path)) == 2
            step(fresh)
            assert publisher.publish(fresh).changed < 20_000
            receiver.stage(timeout=LIMIT_S).apply()
            assert_alike(mine, fresh)
        check_served(publisher, fresh)


def test_no_room_for_a_few_bytes(tmp_path: Path) -> None:
    """They wait in a buffer, and fail once more as the file is closed: it goes all the same."""
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish(fresh)
        with files_up_to(100), pytest.raises(OSError, match="File too large"):
            publisher.publish({"small": np.ones(7, np.float32)}, complete=False)
        assert not list(tmp_path.glob(".sparsewire*"))


def test_a_message_that_rots_at_the_publisher(tmp_path: Path) -> None:
    """Readers that need it get the whole version instead."""
    fresh = weights()
    mine = copy(fresh)
    with Publisher("127.0.0.1:0", directory=tmp_path, keep=1) as publisher:
        publisher.publish(fresh)
        with Receiver(publisher.address, mine) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            step(fresh)
            publisher.publish(fresh)
            publisher._make_anchor()
            with (tmp_path / "000000000001-000000000000.delta").open("r+b") as file:
                file.seek(50)
                file.write(b"rot")
            staged = receiver.stage(timeout=LIMIT_S).apply()
            assert staged.way.is_whole
            assert_alike(mine, fresh)


def test_a_child_does_not_keep_the_directory(tmp_path: Path) -> None:
    """A worker of a DataLoader outlives its parent that is killed; the next publisher may begin."""
    publisher = Publisher("127.0.0.1:0", directory=tmp_path)
    reading, writing = os.pipe()
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.write(begins, b"1")
        os.read(reading, 1)
        os._exit(0)
    try:
        os.read(begun, 1)
        publisher.close()
        Publisher("127.0.0.1:0", directory=tmp_path).close()
    finally:
        for descriptor in (writing, reading, begun, begins):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_a_publisher_comes_back(tmp_path: Path) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        address = publisher.address
        for number in range(3):
            step(fresh, number)
            publisher.publish(fresh)
        with pytest.raises(InputError, match="another process publishes"):
            Publisher("127.0.0.1:0", directory=tmp_path)
    mine = copy(fresh)
    with Receiver(address, mine) as receiver:
        with Publisher(address, directory=tmp_path) as publisher:
            assert publisher.version == 2
            assert receiver.stage(timeout=LIMIT_S).apply().nbytes == 0
            with pytest.raises(MismatchError, match="not newer than 2"):
                publisher.publish(fresh, version=2)
            step(fresh, 5)
            publisher.publish(fresh)
            receiver.stage(timeout=LIMIT_S).apply()
            assert_alike(mine, fresh)
        # It comes back with the state of before: a reader is ahead.
        (tmp_path / "000000000003-000000000002.delta").unlink()
        with Publisher(address, directory=tmp_path) as publisher:
            assert publisher.version == 2
            with pytest.raises(Timeout):
                receiver.stage(timeout=1)
            step(fresh, 6)
            with pytest.raises(MismatchError, match=r"a reader has version 3.*version=4"):
                publisher.publish(fresh)
            publisher.publish(fresh, version=4)
            receiver.stage(timeout=LIMIT_S).apply()
            assert_alike(mine, fresh)


def test_damaged_messages_on_the_disk_are_left_out(tmp_path: Path) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        for number in range(3):
            step(fresh, number)
            publisher.publish(fresh)
    newest = tmp_path / "000000000002-000000000001.delta"
    newest.write_bytes(newest.read_bytes()[:-1])
    (tmp_path / ".sparsewire.left").write_bytes(b"half a message")
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 1
        assert not newest.exists()
        assert not (tmp_path / ".sparsewire.left").exists()


def test_a_full_disk_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish(fresh)
        step(fresh)
        with monkeypatch.context() as patch:
            patch.setattr(store, "mapped", full)
            with pytest.raises(OSError, match="No space left"):
                publisher.publish(fresh)
        assert publisher.version == 0
        assert not list(tmp_path.glob(".sparsewire*"))
        publisher.publish(fresh)
        with Receiver(publisher.address) as receiver:
            receiver.stage(timeout=LIMIT_S).apply()
            found = {name: as_numpy(tensor) for name, tensor in receiver.tensors.items()}
            assert_alike(found, fresh)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_messages_that_make_another_version_are_no_bad_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    monkeypatch.setattr(State, "fingerprint", lambda _: b"another")
    with pytest.raises(DataError, match="do not make version 3"):
        Publisher("127.0.0.1:0", directory=tmp_path)


def test_messages_of_another_format_are_left_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        publisher.publish({"a": np.zeros(3, np.float32)})
    with monkeypatch.context() as patched:
        patched.setattr("sparsewire.weights.versions.message._FORMAT", 1)
        with pytest.raises(DataError, match="use the version that wrote it"):
            Publisher("127.0.0.1:0", directory=tmp_path)
    with Publisher("127.0.0.1:0", directory=tmp_path) as publisher:
        assert publisher.version == 0
