"""Sparse collective communication for distributed training: send only what is not zero.

Public names are imported at their first use, because `import torch` imports this package, too
(autoload.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsewire.collectives.communicator import Communicator
    from sparsewire.errors import (
        AuthenticationError,
        Error,
        InputError,
        MismatchError,
        PeerLost,
        ProtocolError,
        ResourceError,
        Timeout,
    )
    from sparsewire.meeting.connect import init
    from sparsewire.meeting.places.store_place import FileStore, Store
    from sparsewire.meeting.places.tcp_place import TcpStore
    from sparsewire.sparse_vector import SparseVector
    from sparsewire.work import Work

    __version__: str

__all__ = [
    "AuthenticationError",
    "Communicator",
    "Error",
    "FileStore",
    "InputError",
    "MismatchError",
    "PeerLost",
    "ProtocolError",
    "ResourceError",
    "SparseVector",
    "Store",
    "TcpStore",
    "Timeout",
    "Work",
    "__version__",
    "init",
]

_HOMES = {
    "Communicator": "collectives.communicator",
    "FileStore": "meeting.places.store_place",
    "SparseVector": "sparse_vector",
    "Store": "meeting.places.store_place",
    "TcpStore": "meeting.places.tcp_place",
    "Work": "work",
    "init": "meeting.connect",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _version() if name == "__version__" else _imported(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _imported(name: str) -> Any:
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sparsewire")
    except PackageNotFoundError:
        # The source tree is used without being installed.
        return "unknown"
