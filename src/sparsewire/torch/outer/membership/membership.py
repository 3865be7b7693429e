"""Who takes part: the one interface between rounds and whatever knows the replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, NamedTuple

from sparsewire.errors import Error, Timeout


class Epoch(NamedTuple):
    """A membership that its members agreed on: `members` are names in the order of the ranks.

    `store` is a part of a key-value store that only the members of this epoch use, as
    torch.distributed has them.
    """

    number: int
    members: tuple[str, ...]
    rank: int
    store: Any

    @property
    def name(self) -> str:
        """The name of this replica."""
        return self.members[self.rank]


class Excluded(Error):
    """The others have agreed on an epoch without this replica, which may ask to join again."""


class Unanswered(Timeout):
    """Nobody let this replica in, for as long as it was told to wait."""


class Membership(ABC):
    """Yields epochs. The thread of rounds calls it, and nobody else."""

    @abstractmethod
    def reconfigure(self, last: Epoch | None, lost: Collection[str]) -> Epoch:
        """Agree with the others on the next epoch, without the members that are `lost`.

        `last` is the epoch that ended; without, this replica is new, and waits to be let in.
        Replicas that asked to join are let in. A collective call of all that are left. Raises
        Excluded if the others agreed on an epoch without this replica, Unanswered if nobody answers
        in time, and Error if this epoch cannot be, after which it is called again.
        """

    def wishes(self, epoch: Epoch) -> bool:
        """Whether a replica asks to join; one member asks this once a round."""
        return False

    def close(self) -> None:  # noqa: B027 - not every kind holds something
        """Let go of what is held. Idempotent."""
