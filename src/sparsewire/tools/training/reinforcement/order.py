"""One run of the loop, which every process reads from JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

TRAINERS = 2
READERS = 2
DELTAS, WHOLE = "deltas", "whole"


@dataclass(frozen=True)
class Order:
    """`transfer` is "deltas" or "whole"; the weights to start from are in the file `start`.

    For each version each reader samples so many `answers` to each of so many `prompts`.
    """

    transfer: str
    start: str
    versions: int
    seed: int
    prompts: int = 8
    answers: int = 8
    rate: float = 2e-5
    lag: int = 1
    """So many versions a reader is behind: trainers make version n + 1 of what is sampled with
    version n - lag, while readers sample the next batch."""
    width: int = 384
    depth: int = 2
    pretraining_steps: int = 150
    timeout_s: float = 120.0

    @property
    def batch(self) -> int:
        """Samples of a reader for each version."""
        return self.prompts * self.answers

    def by(self, transfer: str) -> Order:
        """The same with another transfer."""
        return replace(self, transfer=transfer)
