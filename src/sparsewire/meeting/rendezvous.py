"""How ranks find each other: a small key-value store that all of them can reach."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

from sparsewire.errors import Error, Timeout
from sparsewire.meeting.mpi_store import as_mpi, mpi_store
from sparsewire.meeting.tcp_store import TcpStore
from sparsewire.options import Options

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_POLL_FIRST_S = 0.001
_POLL_MAX_S = 0.1


class Store(Protocol):
    """What sparsewire needs of a store; those of torch.distributed fit."""

    def set(self, key: str, value: Any) -> object:
        """Keep the bytes `value` under `key`, for all ranks to see."""

    def get(self, key: str) -> bytes:
        """Wait for `key`, as long as the store's own timeout says, and return its value."""


class FileStore:
    """A store in a directory that all ranks see. Each job needs a fresh, empty directory."""

    def __init__(self, directory: str | os.PathLike[str], timeout: float = 300.0) -> None:
        """`timeout` is in seconds, for each `get`."""
        self._directory = Path(directory)
        self._timeout = timeout
        self._directory.mkdir(parents=True, exist_ok=True)

    def set(self, key: str, value: bytes) -> None:
        """Raises Error where the key is there already, so left over from an earlier job."""
        path = self._path(key)
        if path.exists():
            raise Error(
                f"{self._directory} was used by another job: give every job a fresh directory"
            )
        self._check_directory()
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        # The values include the job's secret, which is for this user only.
        with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(value)
        part.replace(path)

    def get(self, key: str) -> bytes:
        path = self._path(key)
        deadline = time.monotonic() + self._timeout
        pause = _POLL_FIRST_S
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                self._check_directory()
                if time.monotonic() >= deadline:
                    raise Timeout(f"{path} did not appear in {self._timeout:g} s") from None
            time.sleep(pause)
            pause = min(2 * pause, _POLL_MAX_S)

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._path(key).exists() for key in keys)

    def _check_directory(self) -> None:
        if not self._directory.is_dir():
            raise Error(f"lost the store where the ranks meet: {self._directory} is gone")

    def _path(self, key: str) -> Path:
        return self._directory / quote(key, safe="")


_uses: weakref.WeakKeyDictionary[Store, int] = weakref.WeakKeyDictionary()
_shared: dict[tuple[str, str, str], Store] = {}
_lock = threading.Lock()


def next_use(store: Store) -> int:
    """How often this store was used before: keeps the keys of several communicators apart.

    All ranks agree on it, because making a communicator is a collective call.
    """
    with _lock:
        use = _uses.get(store, 0)
        _uses[store] = use + 1
        return use


def open_store(
    store: Store | Intracomm | None, options: Options, environment: Mapping[str, str]
) -> Store:
    """Where the ranks meet: in `store`, over it if it is an MPI communicator, or by default."""
    if (mpi := as_mpi(store)) is not None:
        return mpi_store(mpi, options.start_timeout)
    return cast(Store, store) if store else default_store(options, environment)


def default_store(options: Options, environment: Mapping[str, str]) -> Store:
    """The store that the environment names; one per process, however often it is asked for."""
    url = environment.get("SPARSEWIRE_RENDEZVOUS", "")
    where = (url, environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", ""))
    with _lock:
        if where not in _shared:
            _shared[where] = _open(*where, options, environment)
        return _shared[where]


def leave_store(store: Store) -> None:
    """Close our own store once all ranks are connected; it opens again for the next `init`."""
    if isinstance(store, TcpStore) and store in _shared.values():
        store.leave()


def _forget() -> None:
    """In a forked child, where the lock may be held by nobody who is there."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)


def _open(
    url: str, host: str, port: str, options: Options, environment: Mapping[str, str]
) -> Store:
    if url:
        return FileStore(_directory(url), options.start_timeout)
    if not host or not port.isdigit():
        raise ValueError(
            "MASTER_ADDR and MASTER_PORT do not say where the ranks meet: start with torchrun, "
            "set both, set SPARSEWIRE_RENDEZVOUS=file:///directory, or pass store="
        )
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _agent_store(host, int(port), options.start_timeout, environment)
    return TcpStore(
        host, int(port), options.rank == 0, options.start_timeout, secret=options.secret
    )


def _directory(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"SPARSEWIRE_RENDEZVOUS={url!r} is not of the form file:///directory")
    return unquote(parts.path)


def _agent_store(host: str, port: int, timeout: float, environment: Mapping[str, str]) -> Store:
    """Torchrun's own store, which holds the port and outlives restarts of the workers."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"sparsewire/{run}/{attempt}", store)
