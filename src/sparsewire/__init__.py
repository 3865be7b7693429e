"""Sparse collective communication for distributed training: send only what is not zero."""

from importlib.metadata import PackageNotFoundError, version

from sparsewire.communicator import Communicator
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
from sparsewire.meeting.store_place import FileStore, Store
from sparsewire.meeting.tcp_place import TcpStore
from sparsewire.sparse_vector import SparseVector
from sparsewire.work import Work

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
