"""Ranks that meet in a key-value store: one of torch.distributed, or a directory of files."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from sparsewire.errors import Error, Timeout
from sparsewire.meeting.contact.dial import name_ranks
from sparsewire.meeting.contact.waiting import told
from sparsewire.meeting.places.place import absent, join_records, lost, split_records
from sparsewire.options import Options

_POLL_FIRST_S = 0.001
_POLL_MAX_S = 0.1
_LOOK_MAX_S = 0.02
_ROLL_S = 1.0
_WAIT_MIN_S = 0.001
_READERS_S = 30.0
"""Seconds for ranks to read rank 0's last word, before it goes and may end the store."""


class Store(Protocol):
    """The methods that sparsewire needs of a store. Stores of torch.distributed have them."""

    def set(self, key: str, value: Any) -> object:
        """Keep the bytes `value` under `key`, for all ranks to see."""

    def get(self, key: str) -> bytes:
        """Wait for `key`, as long as the store's own timeout says, and return its value."""

    # A store may also have `wait`, `check`, `compare_set` and `delete_key`, as those of
    # torch.distributed: with them ranks that are missing are named, a rank that is started twice is
    # refused, and nothing is left behind.


class FileStore:
    """A store in a directory that all ranks see. Each job needs a fresh, empty directory."""

    def __init__(self, directory: str | os.PathLike[str], timeout: float = 300.0) -> None:
        """`timeout` is in seconds, for each `get`."""
        self._directory = Path(directory)
        self._timeout = timeout
        self._directory.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return str(self._directory)

    def set(self, key: str, value: bytes) -> None:
        """Raises Error where the key is there already, so left over from an earlier job."""
        if not self._create(key, value):
            raise Error(
                f"{self._directory} was used by another job: give every job a fresh directory"
            )

    def compare_set(self, key: str, expected: str, value: bytes) -> bytes:
        """Set `key` unless it is set, and return its value then; `expected` must be ""."""
        if expected:
            raise ValueError("a value in a directory of files stays as it is")
        return value if self._create(key, value) else self._path(key).read_bytes()

    def _create(self, key: str, value: bytes) -> bool:
        """False where the key is there already, and untouched; of several at once, one creates."""
        path = self._path(key)
        self._check_directory()
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        # The values include the job's secret, which is for this user only.
        with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(value)
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError:  # A file system without links: two at once may both succeed.
            if path.exists():
                return False
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return True

    def get(self, key: str) -> bytes:
        """Raises Timeout where the key does not appear."""
        self.wait([key], timedelta(seconds=self._timeout))
        return self._path(key).read_bytes()

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        """Return once all `keys` are there; raises Timeout."""
        deadline = time.monotonic() + timeout.total_seconds()
        pause = _POLL_FIRST_S
        while not self.check(keys):
            self._check_directory()
            if time.monotonic() >= deadline:
                raise Timeout(f"{', '.join(keys)} did not appear in {self._directory}")
            time.sleep(pause)
            pause = min(2 * pause, _POLL_MAX_S)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` are there."""
        return all(self._path(key).exists() for key in keys)

    def delete_key(self, key: str) -> bool:
        """Forget `key`; False where it is not there."""
        try:
            self._path(key).unlink()
        except FileNotFoundError:
            return False
        return True

    def _check_directory(self) -> None:
        if not self._directory.is_dir():
            raise lost(f"{self._directory} is gone")

    def _path(self, key: str) -> Path:
        return self._directory / quote(key, safe="")


_uses: weakref.WeakKeyDictionary[Store, int] = weakref.WeakKeyDictionary()

# The one key that meetings in a store leave there, as rank 0 knows it.
_left: weakref.WeakKeyDictionary[Store, str] = weakref.WeakKeyDictionary()


_former: set[int] = set()
"""Hashes of what this process published in places that it has left; no two records are equal."""


def next_use(store: Store) -> int:
    """How often this store was used before: keeps the keys of several communicators apart.

    All ranks agree on it, because making a communicator is a collective call.
    """
    use = _uses.get(store, 0)
    _uses[store] = use + 1
    return use


class StorePlace:
    """The part of a store that belongs to one communicator."""

    def __init__(self, store: Store, options: Options, deadline: float) -> None:
        """`deadline` is on the monotonic clock."""
        self._store = store
        self._prefix = f"sparsewire/{next_use(store)}"
        self._rank, self._world_size = options.rank, options.world_size
        self._deadline = deadline
        self._gathered = 0
        self._published: set[int] = set()
        self._awaits = ""
        self._next_roll = 0.0

    def all_gather(self, record: bytes) -> Generator[bytes]:
        """As `Place.all_gather`, with a few messages for each rank: rank 0 reads all records."""
        number = self._gathered
        self._gathered += 1
        self._publish(f"record {number}", record)
        gathering = self._collect(number) if self._rank == 0 else self._read_all(number)
        with told(self._rank, self._world_size, lambda: self._awaits):
            yield from gathering

    def _publish(self, what: str, record: bytes) -> None:
        """Raises Error where another process of the same rank was first, if the store can tell."""
        found = self._set_first(self._key(what, self._rank), record)
        self._published.add(hash(record))
        if found == record:
            return
        if hash(found) not in _former:
            raise Error(
                f"another process has joined as rank {self._rank} where the ranks meet: start each "
                "rank once, with a RANK of its own, and give each job a store of its own"
            )
        # A store that lived on, under another name, still had what this process left there.
        self._set(what, record)

    def _set_first(self, key: str, record: bytes) -> bytes:
        """Set `key` unless it is set, and return its value. Without compare_set it overwrites."""
        try:
            if compare_set := getattr(self._store, "compare_set", None):
                with contextlib.suppress(Exception):
                    return bytes(compare_set(key, "", record))
            self._store.set(key, record)
        except Exception as error:
            raise _as_error(error) from error
        return record

    def _collect(self, number: int) -> Generator[bytes]:
        records: list[bytes] = []
        self._next_roll = time.monotonic() + _ROLL_S
        try:
            for rank in range(self._world_size):
                is_there = self._look_out(f"record {number}", rank)
                records.append(self._get(f"record {number}", rank, is_there))
                yield records[-1]
        except GeneratorExit:
            self._set(f"all {number}", join_records(records))
            raise
        if self._is_there(f"gone {number}"):
            self._set(f"all {number}", b"")
            raise _gave_up()
        self._awaits = ""
        self._set(f"all {number}", join_records(records))
        self._await_readers(number)
        self._delete(f"all {number}", 0)
        self._replace_left(self._key(f"record {number}", 0))

    def _look_out(self, what: str, rank: int) -> bool:
        """Whether it has come to be there; False at the deadline, or where the store cannot tell.

        Rank 0 alone asks again and again, and names all missing ranks. In a wait of the store's
        own it could not ask, and one that is cut off fills the log of torch.
        """
        self._awaits = self._named([rank])
        pause = _POLL_FIRST_S
        with contextlib.suppress(Exception):
            key = self._key(what, rank)
            while time.monotonic() < self._deadline:
                if self._store.check([key]):  # type: ignore[attr-defined]
                    return True
                if time.monotonic() >= self._next_roll:
                    self._awaits = self._named(self._missing(what, rank) or [rank])
                    self._next_roll = time.monotonic() + _ROLL_S
                time.sleep(pause)
                pause = min(2 * pause, _LOOK_MAX_S)
        return False

    def _named(self, ranks: list[int]) -> str:
        return f"{name_ranks(ranks)} in {_where(self._store)}"

    def _await_readers(self, number: int) -> None:
        """Rank 0 may host the store. A rank that has not read by now tells those that it meets."""
        keys = [self._key(f"read {number}", rank) for rank in range(1, self._world_size)]
        limit = min(self._deadline - time.monotonic(), _READERS_S)
        with contextlib.suppress(Exception):
            self._wait(keys, limit)
        for key in keys:
            self._forget(key)

    def _read_all(self, number: int) -> Generator[bytes]:
        # Rank 0 may wait for more ranks than there are, which its record tells.
        self._awaits = self._named([0])
        yield self._told(f"record {number}", number)
        self._awaits = f"the other ranks in {_where(self._store)}, which the log of rank 0 names"
        records = split_records(self._told(f"all {number}", number))
        if not records:
            raise _gave_up()
        yield from records[1:]
        if len(records) < self._world_size:
            raise lost(f"rank 0 found no use for the record of rank {len(records) - 1}")
        self._delete(f"record {number}", self._rank)
        self._set(f"read {number}", b"1")

    def _told(self, what: str, number: int) -> bytes:
        """Rank 0's word. A rank that stops waiting for it leaves a note in the store."""
        try:
            return self._get(what, 0)
        except Timeout:
            # Rank 0 looks for this word before it says that all are here.
            with contextlib.suppress(Error):
                self._set(f"gone {number}", b"1", 0)
            if not self._is_there(what):
                raise
            return self._get(what, 0)

    def fail(self, error: BaseException) -> None:
        """The others find out by the time limit."""

    def close(self) -> None:
        """The store is its maker's."""
        _former.update(self._published)

    def _set(self, what: str, value: bytes, rank: int | None = None) -> None:
        try:
            self._store.set(self._key(what, self._rank if rank is None else rank), value)
        except Exception as error:
            raise _as_error(error) from error

    def _get(self, what: str, rank: int, is_there: bool = False) -> bytes:
        key = self._key(what, rank)
        try:
            if not is_there:
                self._wait([key], self._deadline - time.monotonic())
            return self._store.get(key)
        except Exception as error:
            if not _is_timeout(error):
                raise _as_error(error) from error
            number = what.split()[-1]
            is_all = what.startswith("all")
            missing = self._missing(f"record {number}" if is_all else what, 0 if is_all else rank)
            raise absent(missing or [rank], error) from error

    def _wait(self, keys: list[str], limit: float) -> None:
        """Some stores can only by asking for the values, as long as their own timeout says."""
        if wait := getattr(self._store, "wait", None):
            # Torch takes 0 for no limit.
            wait(keys, timedelta(seconds=max(limit, _WAIT_MIN_S)))
        else:
            for key in keys:
                self._store.get(key)

    def _is_there(self, what: str) -> bool:
        """Whether there is such a key of rank 0. Not every store can tell."""
        with contextlib.suppress(Exception):
            return bool(self._store.check([self._key(what, 0)]))  # type: ignore[attr-defined]
        return False

    def _replace_left(self, key: str) -> None:
        """Leave rank 0's last record, which tells a rank too many, that is late, of its mistake."""
        if former := _left.get(self._store):
            self._forget(former)
        _left[self._store] = key

    def _delete(self, what: str, rank: int) -> None:
        """Leave nothing behind of what all have read."""
        self._forget(self._key(what, rank))

    def _forget(self, key: str) -> None:
        """Not every store can."""
        if delete := getattr(self._store, "delete_key", None):
            with contextlib.suppress(Exception):
                delete(key)

    def _missing(self, what: str, first: int) -> list[int]:
        missing = []
        # Some stores cannot tell, and neither can a store that is lost by now.
        with contextlib.suppress(Exception):
            for rank in range(first, self._world_size):
                if not self._store.check([self._key(what, rank)]):  # type: ignore[attr-defined]
                    missing.append(rank)
        return missing

    def _key(self, what: str, rank: int) -> str:
        return f"{self._prefix}/{what}/{rank}"


def _where(store: Store) -> str:
    return str(store) if isinstance(store, FileStore) else "the store where the ranks meet"


def _gave_up() -> Timeout:
    return Timeout(
        "a rank gave up waiting where the ranks meet, before all had come: it says itself whom it "
        "missed. Start the ranks closer together, or allow more time with timeout="
    )


def _is_timeout(error: Exception) -> bool:
    """Whether a store has waited in vain. Torch's stores say so in words only."""
    return isinstance(error, (Timeout, TimeoutError)) or "timeout" in str(error).lower()


def _as_error(error: Exception) -> Error:
    return error if isinstance(error, Error) else lost(error)
