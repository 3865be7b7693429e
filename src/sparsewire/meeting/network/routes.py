"""How each lane reaches each rank: where that one listens, and the own address to call from.

Lane i goes from interface to interface, each one's number i, modulo how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparsewire.meeting.contact.sockets import LocalAddress, Target
from sparsewire.options import Address


@dataclass(frozen=True)
class Routes:
    """The ways from one rank to all others."""

    listeners: Sequence[Sequence[Address]]
    """The listeners of each rank, one for each of its interfaces."""
    neighbours: Mapping[int, LocalAddress] = field(default_factory=dict)
    """Further listeners of ranks that share this host's memory."""
    interfaces: Sequence[str] = ()
    """This rank's own addresses; none where the system may choose by the target alone."""

    def targets(self, rank: int, lane: int) -> list[Target]:
        """The addresses to call a rank at, in order: on this host its local socket first."""
        listeners = self.listeners[rank]
        near: list[Target] = [self.neighbours[rank]] if rank in self.neighbours else []
        return [*near, listeners[lane % len(listeners)]]

    def source(self, lane: int) -> str:
        """The local address to call from; "" for any."""
        return self.interfaces[lane % len(self.interfaces)] if self.interfaces else ""
