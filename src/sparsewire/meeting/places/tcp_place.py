"""Ranks that meet over TCP: rank 0 listens, takes a record from each rank, and gives all to all.

A caller must prove the job's secret first. Without a secret that keeps out only those who
speak another language; what each may send is bounded all the same. Rank 0 (`host.py`) listens until
the ranks have met once; the connections of the others (`guest.py`) stay for further records, until
it closes them.
"""

from __future__ import annotations

import warnings

from sparsewire.meeting.contact.handshake import meeting_key
from sparsewire.meeting.places.guest import Guest
from sparsewire.meeting.places.host import Host
from sparsewire.meeting.places.place import Place
from sparsewire.options import Address, Options, check_secret


class TcpStore:
    """Deprecated: where ranks meet over TCP, for `init`. It keeps no values any more."""

    def __init__(
        self, host: str, port: int, is_server: bool, timeout: float = 300.0, *, secret: bytes = b""
    ) -> None:
        """Rank 0 listens at `host`:`port`, and `init` has its own time limit.

        All ranks pass the same `secret`, or none.
        """
        warnings.warn(
            "sparsewire.TcpStore keeps no values any more, and will go: set MASTER_ADDR and "
            "MASTER_PORT, or pass a torch.distributed.TCPStore to sparsewire.init",
            DeprecationWarning,
            stacklevel=2,
        )
        self.address = Address(host, port)
        self.secret = check_secret(secret)


def tcp_place(address: Address, secret: bytes, options: Options, deadline: float) -> Place:
    """The ranks' place at `address`, until `deadline` on the monotonic clock.

    Raises Error where rank 0 cannot listen there.
    """
    kind = Guest if options.rank else Host
    return kind(address, meeting_key(secret), options, deadline)
