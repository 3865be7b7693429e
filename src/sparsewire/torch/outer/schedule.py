"""When rounds take place, and the settings of the training loop's side, checked."""

from __future__ import annotations

CORRECTED = "corrected"
"""Merging keeps what training has done while the sum was on its way."""


class Schedule:
    """When rounds take place: `fragments` of them in `every` steps, evenly spread."""

    def __init__(self, every: int, fragments: int, delay: int) -> None:
        """Raises ValueError for settings out of range."""
        if every < 1 or not 1 <= fragments <= every:
            raise ValueError(
                f"every={every} and fragments={fragments} do not fit: each fragment needs a step "
                "of its own, and both are at least 1"
            )
        if not 0 <= delay <= every // fragments:
            raise ValueError(
                f"delay={delay} is out of range: a sum travels for at most every // fragments = "
                f"{every // fragments} steps, until the next one"
            )
        self.every = every
        self.fragments = fragments
        self.delay = delay

    def is_due(self, steps: int) -> bool:
        """Whether a round begins after so many steps."""
        return steps * self.fragments // self.every > (steps - 1) * self.fragments // self.every


def check_ranges(mix: float | str, decay: float, patience: int, deadline: float | None) -> None:
    """Raises ValueError for settings out of range."""
    if mix != CORRECTED and not (isinstance(mix, int | float) and 0 <= mix <= 1):
        raise ValueError(f"mix is a share from 0 to 1, or {CORRECTED!r}, and not {mix!r}")
    if not 0 <= decay <= 1:
        raise ValueError(f"decay is 0 to 1, the share of what is owed that is kept, not {decay}")
    if patience < 0:
        raise ValueError(f"patience is a number of rounds, at least 0, and not {patience}")
    if deadline is not None and not deadline >= 0:
        raise ValueError(f"deadline is in seconds, at least 0, or None, and not {deadline}")
