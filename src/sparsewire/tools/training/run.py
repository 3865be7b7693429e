"""Runs one training on a cluster, and keeps what its ranks told."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.crew import Event, module_argv, run_workers
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.lab import Lab
from sparsewire.tools.measure.wire_limit import ring_bytes
from sparsewire.tools.training.trial import Averaging, Trial

FINAL_SHARE = 0.05
"""The share of the steps at the end over which the final training loss is averaged."""
ARRANGING_STEPS = 3
"""First steps that means of times leave out: DDP arranges its buckets in the first two."""
_ITEM_BYTES = 4


@dataclass(frozen=True)
class Trained:
    """The outcome of one training. Losses are means over the ranks.

    `warmup` is the number of first steps in which hooks sent everything, `sent` the bytes of a rank
    in each step. `counted_by` tells how `sent` came about: "interface", headers included,
    "sparsewire" (its own count), or "computed" (for a ring). `held_out` has pairs of a step and a
    loss. Densities, of a rank's gradient and of the sum, are "element" and "block", 0 to 1.
    """

    task: str
    averaging: str
    seed: int
    warmup: int
    parameters: int
    losses: list[float]
    held_out: list[tuple[int, float]]
    step_s: list[float]
    sent: list[float]
    counted_by: str
    density_sum: dict[str, float]
    density_rank: dict[str, float] | None = None
    alone_s: float = math.nan
    """A step without communication; like the density of a rank, where it was wanted."""

    @classmethod
    def of(cls, trial: Trial, ranks: int, told: Event) -> Trained:
        """The outcome from rank 0's last event."""
        sent, counted_by = told["sent"], "interface" if trial.interface else "sparsewire"
        if sent is None:
            ring = ring_bytes(_ITEM_BYTES * told["parameters"], ranks)
            sent, counted_by = [ring] * trial.steps, "computed"
        held_out = [(step, loss) for step, loss in told["held_out"]]
        own = {"sent": sent, "counted_by": counted_by, "held_out": held_out}
        return cls(trial.task, trial.averaging, trial.seed, trial.warmup, **{**told, **own})

    @property
    def in_words(self) -> str:
        """What legends call the averaging."""
        return Averaging.parse(self.averaging).in_words

    @property
    def final_loss(self) -> float:
        """The mean training loss at the end."""
        return fmean(self.losses[-max(1, round(FINAL_SHARE * len(self.losses))) :])

    @property
    def held_out_loss(self) -> float:
        """The held-out loss at the end."""
        return self.held_out[-1][1]

    @property
    def sent_per_step(self) -> float:
        """The mean over all steps, those of the warm-up included."""
        return fmean(self.sent)

    @property
    def median_step_s(self) -> float:
        """The median of the second half: DIANA's messages grow at first, with its shifts."""
        return median(self.step_s[len(self.step_s) // 2 :])

    @property
    def mean_step_s(self) -> float:
        """The mean of all steps but the first few."""
        return fmean(self.step_s[min(ARRANGING_STEPS, len(self.step_s) - 1) :])


def train(trial: Trial, cluster: Cluster, logs: Path, name: str, move: Move) -> Trained:
    """Run one training under a name; raises LabError or WorkerFailed where that fails."""
    if cluster.emulated:
        trial = replace(trial, interface=Lab.interface)
    told: Event = {}

    def follow(event: Event) -> None:
        if event.pop("event") == "step":
            move(name, event["number"] + 1, trial.steps, f"loss {event['loss']:.3f}")
        else:
            told.update(event)

    move(name, 0, trial.steps, "starting the workers")
    argv = module_argv("sparsewire.tools.training.worker", json.dumps(asdict(trial)))
    with cluster.open() as site:
        run_workers(site, argv, logs, follow)
    return Trained.of(trial, cluster.ranks, told)
