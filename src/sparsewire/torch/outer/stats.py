"""What an outer optimizer counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Counters:
    """Counts of one replica since its start; norms are those of the last round."""

    rounds: int = 0
    """Rounds that were committed while this replica was a member."""
    contributed: int = 0
    """Those with a contribution of this replica."""
    missed: int = 0
    """Those that went on without its contribution, because it was late."""
    discarded: int = 0
    """How often it missed so many rounds that its delta was given up."""
    aborted: int = 0
    """Rounds whose sum was there, and that were not committed: a member was lost, or refused."""
    members: int = 1
    contributors: int = 0
    """Members, and contributors of the last round."""
    epochs: int = 0
    """How often the members agreed on who takes part."""
    bytes_up: int = 0
    bytes_down: int = 0
    """Bytes of this replica's frames on the wire, without headers of TCP and IP, and without the
    copies that newcomers get."""
    peak_bytes_per_s: float = 0.0
    """The most bytes of a round, up or down, by the seconds that the round took."""
    delta_norm: float = 0.0
    residual_norm: float = 0.0
    drift: float = 0.0
    """Root mean square of |delta_i - mean delta| over the contributors."""
    certificate: float = 1.0
    """1 - |p - C(p)|^2 / |p|^2 of the vector p that was compressed: the contraction as measured."""
    seconds_waited: float = 0.0
    """Seconds that the training loop stood still for rounds."""
    round_seconds: float = 0.0
    """Seconds from the beginning of the last round to its commit, without waiting for members."""
    owed_lost: float = 0.0
    """The norms of what lost members owed, added up, as they last told them."""
    lost: list[str] = field(default_factory=list)
    """Names of the members that were lost."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
