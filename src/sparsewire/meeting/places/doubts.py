"""Missing ranks in whose name somebody came without the secret, as rank 0 sees them.

A rank's number proves nothing, so such a caller may be a stranger, whom a start must survive, or
the rank itself, which will not come again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from sparsewire.errors import AuthenticationError

_GRACE_S = 5.0
"""Seconds without a new rank after which the missing ranks count as those that were refused."""
_NAMED = 16


class Doubts:
    """Ranks that were refused and have not come since, and for how long that may go on."""

    def __init__(self) -> None:
        self._addresses: dict[int, str] = {}
        self._expires = 0.0

    def left(self, missing: Sequence[int]) -> float:
        """Seconds for the missing ranks to come; infinite unless all of them are in doubt.

        One that nobody was refused for may just be late, as after a longer download.
        """
        is_hopeless = bool(missing) and all(rank in self._addresses for rank in missing)
        return self._expires - time.monotonic() if is_hopeless else math.inf

    def note_refusal(self, rank: int, address: str) -> None:
        """A caller claimed to be the missing `rank`. Claiming it again wins no time."""
        if rank not in self._addresses:
            self._addresses[rank] = address
            self._renew()

    def note_arrival(self, rank: int) -> None:
        """Wait longer: as long as ranks come in, others may be on their way."""
        self._addresses.pop(rank, None)
        self._renew()

    def error(self) -> AuthenticationError | None:
        """Names those in doubt, if there are some."""
        if not self._addresses:
            return None
        addresses = sorted(self._addresses.items())
        named = ", ".join(f"rank {rank} at {address}" for rank, address in addresses[:_NAMED])
        if len(addresses) > _NAMED:
            named += f" and {len(addresses) - _NAMED} more"
        verb = "has" if len(self._addresses) == 1 else "have"
        return AuthenticationError(
            f"{named} {verb} another SPARSEWIRE_SECRET than rank 0, or none: set the same on all "
            "ranks"
        )

    def _renew(self) -> None:
        self._expires = time.monotonic() + _GRACE_S
