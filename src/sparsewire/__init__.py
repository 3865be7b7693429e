"""Sparse collective communication for distributed training: send only what is not zero."""

from importlib.metadata import PackageNotFoundError, version

from sparsewire.communicator import Communicator, Work, init
from sparsewire.errors import (
    AuthenticationError,
    Error,
    MismatchError,
    PeerLost,
    ProtocolError,
    Timeout,
)
from sparsewire.rendezvous import FileStore, Store
from sparsewire.tcp_store import TcpStore

try:
    __version__ = version("sparsewire")
except PackageNotFoundError:
    # Used from a source tree that is not installed.
    __version__ = "unknown"

__all__ = [
    "AuthenticationError",
    "Communicator",
    "Error",
    "FileStore",
    "MismatchError",
    "PeerLost",
    "ProtocolError",
    "Store",
    "TcpStore",
    "Timeout",
    "Work",
    "__version__",
    "init",
]
