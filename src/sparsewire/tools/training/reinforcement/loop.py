"""Runs the loop once on a cluster, and keeps what its processes told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.crew import Event, module_argv, run_workers
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.training.reinforcement.order import READERS, Order

FINAL_SHARE = 0.1
"""The share of the batches at either end over which rewards are averaged."""

Rows = list[dict[str, Any]]


@dataclass
class Run:
    """What one run of the loop told. `at` of each row is in seconds from the start.

    `versions` have number, at, and with deltas the elements changed, and compare_s, the seconds
    that finding them took. `applied` and `sampled` are of all readers, as `sampling` describes
    their rows. `bits` are the digests of the weights that trainer and readers ended with.
    """

    transfer: str
    parameters: int = 0
    began: float = 0.0
    versions: Rows = field(default_factory=list)
    applied: Rows = field(default_factory=list)
    sampled: Rows = field(default_factory=list)
    bits: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Seconds until the last version was at every reader."""
        return float(max(row["at"] for row in self.applied))

    @property
    def version_s(self) -> float:
        """Seconds for each version, on average."""
        return self.elapsed_s / len(self.versions)

    @property
    def version_bytes(self) -> float:
        """Bytes of weights that a reader got for each version, on average."""
        return self._total("nbytes") / (READERS * len(self.versions))

    @property
    def pause_s(self) -> float:
        """The median pause of a reader while it applied a version."""
        return median(float(row["pause_s"]) for row in self.applied)

    @property
    def idle_s(self) -> float:
        """Seconds for each version in which a reader waited for weights, on average."""
        return self._total("waited_s") / (READERS * len(self.versions))

    @property
    def changed_share(self) -> float | None:
        """The share of the elements that changed in a version, on average; None: nobody looked."""
        found = [row["changed"] for row in self.versions if "changed" in row]
        return fmean(found) / self.parameters if found else None

    @property
    def first_reward(self) -> float:
        """The mean reward of the first batches."""
        return self._mean_reward(slice(self._few))

    @property
    def last_reward(self) -> float:
        """The mean reward of the last batches."""
        return self._mean_reward(slice(-self._few, None))

    @property
    def is_exact(self) -> bool:
        """Whether the readers ended with the trainer's bits."""
        return len(self.bits) == 1 + READERS and len(set(self.bits)) == 1

    def _total(self, name: str) -> float:
        return float(sum(row[name] for row in self.applied))

    @property
    def _few(self) -> int:
        return max(1, round(FINAL_SHARE * len(self.sampled)))

    def _mean_reward(self, part: slice) -> float:
        return fmean(row["reward"] for row in self.sampled[part])

    def take(self, event: Event) -> None:
        """Take in what rank 0 tells."""
        kind = event.pop("event")
        if kind == "began":
            self.began, self.parameters = event["at"], event["parameters"]
        elif kind == "version":
            self.versions.append(self._from_start(event))
        else:
            self.bits.append(event["bits"])
            for rows, name in ((self.applied, "applied"), (self.sampled, "sampled")):
                rows.extend(map(self._from_start, event.get(name, [])))
                rows.sort(key=lambda row: row["at"])

    def _from_start(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "at": row["at"] - self.began}


def run(order: Order, cluster: Cluster, logs: Path, name: str, move: Move) -> Run:
    """Run the loop under a name; raises LabError or WorkerFailed where that fails."""
    found = Run(order.transfer)

    def follow(event: Event) -> None:
        found.take(event)
        if found.versions and not found.bits:
            last = found.versions[-1]
            move(name, last["number"], order.versions, f"reward {last['reward']:.3f}")

    move(name, 0, order.versions, "starting trainers and readers")
    argv = module_argv(f"{__package__}.worker", json.dumps(asdict(order)))
    with cluster.open() as site:
        run_workers(site, argv, logs, follow)
    return found
