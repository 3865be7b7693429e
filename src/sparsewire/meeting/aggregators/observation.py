"""The document that an aggregator sends to an observer, behind the usual handshake.

An observer takes no part in any job. It gets the document behind its size, and the connection ends.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from contextlib import closing
from dataclasses import asdict, dataclass

from sparsewire.errors import AuthenticationError, ProtocolError, Timeout
from sparsewire.fields import read_fields
from sparsewire.meeting.contact.dial import attempt
from sparsewire.meeting.contact.handshake import (
    ANY_PEER,
    Guard,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    new_nonce,
    observer_key,
)
from sparsewire.meeting.contact.sockets import receive_exactly
from sparsewire.options import Address

JOBS_TOLD = 256
"""Jobs in a document; of further ones only the number is told."""
DOCUMENT_MAX = 128 * 1024
PATIENCE_S = 5.0

_SIZE = struct.Struct("!I")
_JOB = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True)
class JobStatus:
    """One job. `job` is its number in hexadecimal, as in logs; `here` of its ranks are connected.

    `slots` counts datagrams: contributions, duplicates, stale, rejected, results, resent, recalls.
    It is empty if the job sends none.
    """

    job: str
    epoch: int
    ranks: int
    here: int
    slots: dict[str, int]


@dataclass(frozen=True)
class AggregatorStatus:
    """All of an aggregator at one moment. `totals` are those of all its jobs, in bytes and counts,
    of those that have ended, too."""

    address: str
    transport: str
    interface: str
    seconds: float
    """Since it started."""
    totals: dict[str, int]
    jobs: tuple[JobStatus, ...]
    jobs_left_out: int = 0
    hook: str = ""
    """The hook by which the kernel adds up: "xdp" in the driver, "tc" behind it, "" for none."""

    def encode(self) -> bytes:
        document = json.dumps(asdict(self), separators=(",", ":")).encode()
        return _SIZE.pack(len(document)) + document

    @classmethod
    def decode(cls, document: bytes) -> AggregatorStatus:
        """Raises ProtocolError for what `encode` has not made."""
        try:
            status = read_fields(cls, json.loads(document))
            counts = [status.totals, *(job.slots for job in status.jobs)]
            if not all(name.isidentifier() for told in counts for name in told):
                raise ValueError
            texts = (status.address, status.transport, status.interface, status.hook)
            if not all(text.isprintable() for text in texts):
                raise ValueError
            if not all(_JOB.fullmatch(job.job) for job in status.jobs):
                raise ValueError
        except (ValueError, RecursionError):
            raise ProtocolError("an aggregator told what no status is") from None
        return status


class ObserverGuard(Guard):
    """Lets in observers that know the secret; without a secret, all."""

    def __init__(self, secret: bytes) -> None:
        self._key = observer_key(secret)

    def key_for(self, hello: Hello) -> bytes:
        if hello.peer != ANY_PEER:
            raise Refused(Reason.WRONG_JOB)
        return self._key


def tell(connection: socket.socket, status: AggregatorStatus) -> None:
    """Hand an observer its document, and close the connection; never waits for the other end."""
    with closing(connection), contextlib.suppress(OSError):
        # All of it fits into the system's buffer, from where it goes by itself.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DOCUMENT_MAX)
        connection.send(status.encode())


def ask(address: Address, secret: bytes = b"", limit: float = PATIENCE_S) -> AggregatorStatus:
    """The status of the aggregator at `address`, which has `limit` seconds for each answer.

    Raises Timeout where nobody answers, AuthenticationError, or ProtocolError.
    """
    hello = Hello(Role.OBSERVER, 0, 0, 0, ANY_PEER, 0, 0, new_nonce())
    try:
        with closing(attempt(address, introduce(hello, observer_key(secret)), limit)) as connection:
            (size,) = _SIZE.unpack(receive_exactly(connection, _SIZE.size))
            if size > DOCUMENT_MAX:
                raise ProtocolError(f"a status of {size} bytes")
            return AggregatorStatus.decode(receive_exactly(connection, size))
    except AuthenticationError as error:
        raise AuthenticationError(f"aggregator at {address}: {error}") from error
    except ProtocolError as error:
        raise ProtocolError(f"aggregator at {address}: {error}") from error
    except OSError as error:
        raise Timeout(f"no aggregator answers at {address}: {error}") from error
