"""Finds the place where the ranks meet: what the caller passes, or the environment names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import cast
from urllib.parse import unquote, urlsplit

from sparsewire.meeting.mpi_place import as_mpi, mpi_place
from sparsewire.meeting.place import Place
from sparsewire.meeting.store_place import FileStore, Store, StorePlace
from sparsewire.meeting.tcp_place import TcpStore, tcp_place
from sparsewire.options import Address, Options

_named: dict[tuple[str, str, str], Store] = {}

# A forked child is a process of its own.
os.register_at_fork(after_in_child=_named.clear)


def open_place(
    store: object, options: Options, environment: Mapping[str, str], deadline: float
) -> Place:
    """Where the ranks meet: in `store`, over it if it is an MPI communicator, or by default.

    `deadline` is on the monotonic clock. Raises ValueError where the environment names no place.
    """
    if (mpi := as_mpi(store)) is not None:
        return mpi_place(mpi, deadline)
    if isinstance(store, TcpStore):
        return tcp_place(store.address, store.secret, options, deadline)
    if store is None and (address := _own_address(environment)) is not None:
        return tcp_place(address, options.secret, options, deadline)
    found = named_store(options, environment) if store is None else cast(Store, store)
    return StorePlace(found, options, deadline)


def _own_address(environment: Mapping[str, str]) -> Address | None:
    """Where rank 0 shall listen; None where the ranks meet in a store."""
    if environment.get("SPARSEWIRE_RENDEZVOUS"):
        return None
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise ValueError(
            "MASTER_ADDR and MASTER_PORT do not say where the ranks meet: start with torchrun, "
            "set both, set SPARSEWIRE_RENDEZVOUS=file:///directory, or pass store="
        )
    by_agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return None if by_agent else Address(host, int(port))


def named_store(options: Options, environment: Mapping[str, str]) -> Store:
    """One for all communicators of a process: its uses are counted, to keep their records apart."""
    url = environment.get("SPARSEWIRE_RENDEZVOUS", "")
    where = (url, environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", ""))
    if where not in _named:
        _named[where] = (
            FileStore(_directory(url)) if url else _agent_store(options.start_timeout, environment)
        )
    return _named[where]


def _directory(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"SPARSEWIRE_RENDEZVOUS={url!r} is not of the form file:///directory")
    return unquote(parts.path)


def _agent_store(timeout: float, environment: Mapping[str, str]) -> Store:
    """Torchrun's own store, which holds the port and outlives restarts of the workers."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"sparsewire/{run}/{attempt}", store)
