"""The findings of the demo: what was run, what each backend did, and how they compare."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from sparsewire.experiment.events import Event
from sparsewire.measure.wire_limit import ring_bytes

WARM_UP_STEPS = 3
"""Steps left out of averages: DistributedDataParallel arranges its buckets in the first two."""

SAME_LOSS = 1e-4
"""Largest relative difference of losses that differ by the order of additions only."""

_GRADIENT_ITEM_BYTES = 4


@dataclass(frozen=True)
class Setting:
    """What both backends had in common; `link` is None on loopback."""

    workers: int
    steps: int
    seed: int
    link: str | None
    corpus: str
    tokens: int
    vocabulary: int


@dataclass
class Run:
    """One training over one backend; times in seconds, densities from 0 to 1.

    `bytes_source` tells how `bytes_per_step`, per rank, came about: "interface", "sparsewire" (its
    own count) or "computed".
    """

    backend: str
    losses: list[float]
    wall_s: list[float]
    step_s: float
    alone_s: float
    bytes_per_step: float
    bytes_source: str
    parameters: int
    held_out_before: float
    held_out_after: float
    density_rank: dict[str, float]
    density_sum: dict[str, float]

    @classmethod
    def from_events(cls, backend: str, events: list[Event], setting: Setting) -> "Run":
        """Gather what rank 0 reported in one training."""
        trained, alone = ({**event} for event in events[-2:])
        wall = [event["wall_s"] for event in events if event["event"] == "step"]
        counted = trained["bytes_per_step"]
        computed = ring_bytes(_GRADIENT_ITEM_BYTES * trained["parameters"], setting.workers)
        return cls(
            backend=backend,
            losses=trained["losses"],
            wall_s=wall,
            step_s=mean_step(wall),
            alone_s=alone["step_s"],
            bytes_per_step=computed if counted is None else counted,
            bytes_source=_source(counted, setting),
            parameters=trained["parameters"],
            held_out_before=trained["held_out_before"],
            held_out_after=trained["held_out_after"],
            density_rank=alone["density_rank"],
            density_sum=trained["density_sum"],
        )

    @property
    def communication_s(self) -> float:
        """The part of a step that goes when the rank does not talk to others."""
        return max(0.0, self.step_s - self.alone_s)


@dataclass(frozen=True)
class Report:
    """The whole demo."""

    setting: Setting
    runs: list[Run]

    @property
    def speed_up(self) -> float:
        """How many times as fast the last backend trains as the first."""
        return self.runs[0].step_s / self.runs[-1].step_s

    @property
    def loss_difference(self) -> float:
        """The largest relative difference between any two runs' losses at the same step."""
        by_step: Iterable[tuple[float, ...]] = zip(*(run.losses for run in self.runs), strict=True)
        return max(max(losses) / min(losses) - 1 for losses in by_step)

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        comparison = {"speed_up": self.speed_up, "loss_difference": self.loss_difference}
        path.write_text(json.dumps({**asdict(self), "comparison": comparison}, indent=2) + "\n")


def mean_step(wall_s: list[float]) -> float:
    """Return the mean time of a step after the warm-up, from the times at which steps ended."""
    warm_up = min(WARM_UP_STEPS, len(wall_s) - 1)
    return fmean(
        end - start for start, end in zip(wall_s[warm_up - 1 :], wall_s[warm_up:], strict=False)
    )


def _source(counted: float | None, setting: Setting) -> str:
    if counted is None:
        return "computed"
    return "sparsewire" if setting.link is None else "interface"
