"""The demo: one language model, trained over one backend after the other under equal conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.progress import Move
from sparsewire.training.run import Trained, train
from sparsewire.training.trial import Trial

TOKENS = "tokens.npy"
VOCABULARY = 50_000
WIDTH = 256
ALONE_STEPS = 6


@dataclass(frozen=True)
class Setting:
    """What all backends have in common; `link` is None on loopback."""

    workers: int
    steps: int
    seed: int
    link: str | None
    corpus: str
    tokens: int
    vocabulary: int


@dataclass(frozen=True)
class Demo:
    """The whole demo; the methods of its runs are backends."""

    setting: Setting
    runs: list[Trained]

    @property
    def speed_up(self) -> float:
        """How many times as fast the last backend trains as the first."""
        return self.runs[0].mean_step_s / self.runs[-1].mean_step_s

    @property
    def loss_difference(self) -> float:
        """The largest relative difference between any two runs' losses at the same step."""
        by_step: Iterable[tuple[float, ...]] = zip(*(run.losses for run in self.runs), strict=True)
        return max(max(losses) / min(losses) - 1 for losses in by_step)

    def record(self) -> dict[str, Any]:
        """Everything as JSON takes it."""
        return {
            "setting": asdict(self.setting),
            "runs": [_record(run) for run in self.runs],
            "comparison": {"speed_up": self.speed_up, "loss_difference": self.loss_difference},
        }


def _record(run: Trained) -> dict[str, Any]:
    return {
        "backend": run.method,
        "losses": run.losses,
        "wall_s": list(accumulate(run.step_s)),
        "step_s": run.mean_step_s,
        "alone_s": run.alone_s,
        "bytes_per_step": run.sent_per_step,
        "bytes_source": run.counted_by,
        "parameters": run.parameters,
        "held_out_before": run.held_out[0][1],
        "held_out_after": run.held_out_loss,
        "density_rank": run.density_rank,
        "density_sum": run.density_sum,
    }


def run_demo(
    setting: Setting, backends: Iterable[str], cluster: Cluster, output: Path, move: Move
) -> Demo:
    """Train once over each backend, on the tokens and with the logs that the output folder has.

    Raises LabError where the lab fails, WorkerFailed where a worker does.
    """
    runs = [
        train(_trial(setting, backend, output), cluster, output / "logs" / backend, backend, move)
        for backend in backends
    ]
    return Demo(setting, runs)


def _trial(setting: Setting, backend: str, output: Path) -> Trial:
    return Trial(
        task="lstm",
        method=backend,
        steps=setting.steps,
        seed=setting.seed,
        evaluations=1,
        alone_steps=ALONE_STEPS,
        width=WIDTH,
        tokens=str(output / TOKENS),
    )
