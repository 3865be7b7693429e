"""The demo: one language model, trained over one backend after the other under equal conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from sparsewire.experiment.cluster import Cluster
from sparsewire.experiment.progress import Move
from sparsewire.training.lstm.corpus import Corpus, save_corpus
from sparsewire.training.run import Trained, train
from sparsewire.training.trial import Trial

VOCABULARY = 50_000
WIDTH = 256
ALONE_STEPS = 6


@dataclass(frozen=True)
class Demo:
    """The whole demo; the methods of its runs are backends."""

    cluster: Cluster
    corpus: Corpus
    steps: int
    seed: int
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
            "setting": {
                "workers": self.cluster.ranks,
                "steps": self.steps,
                "seed": self.seed,
                "link": self.cluster.link,
                "corpus": self.corpus.source,
                "tokens": len(self.corpus.tokens),
                "vocabulary": self.corpus.vocabulary,
            },
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
    backends: Iterable[str],
    cluster: Cluster,
    text: Path | None,
    steps: int,
    seed: int,
    output: Path,
    move: Move,
) -> Demo:
    """Train once over each backend; leave the tokens and the workers' logs in the output folder.

    Raises ExperimentError where the text cannot be read, LabError where the lab fails, WorkerFailed
    where a worker does.
    """
    tokens = output / "tokens.npy"
    corpus = save_corpus(text, VOCABULARY, cluster.ranks, tokens)
    trial = Trial(
        task="lstm",
        method="",
        steps=steps,
        seed=seed,
        evaluations=1,
        alone_steps=ALONE_STEPS,
        width=WIDTH,
        tokens=str(tokens),
    )
    runs = [
        train(replace(trial, method=backend), cluster, output / "logs" / backend, backend, move)
        for backend in backends
    ]
    return Demo(cluster, corpus, steps, seed, runs)
