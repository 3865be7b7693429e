"""A worker's flow by its greetings: which move it to another address, and which are copies."""

from __future__ import annotations

from dataclasses import dataclass

from sparsewire.xdp.maps import Worker


@dataclass
class Greeter:
    """A worker as its greetings to this process show it; the programs hear further greetings."""

    number: int = 0
    """The largest."""
    before: Worker | None = None
    """The worker's address before this number moved it, until the number has moved it back."""

    def stays(self, number: int) -> None:
        """Hear a greeting from where the worker is."""
        if number > self.number:
            self.number, self.before = number, None

    def moves(self, now: Worker, to: Worker, number: int) -> bool:
        """Whether a greeting moves the worker from `now`, which knows the programs' last number.

        A copy may overtake the greeting. Then the same number comes from where the worker was, and
        moves it back; but once, or the two would take the place from each other without end.
        """
        if number > max(self.number, now.greeted):
            self.number, self.before = number, now if now.is_bound else None
            return True
        is_of_now = number == self.number and number >= now.greeted
        was_overtaken = is_of_now and self.before is not None and to.is_at(self.before)
        if was_overtaken:
            self.before = None
        return was_overtaken
