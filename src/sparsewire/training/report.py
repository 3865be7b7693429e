"""The findings: every training that was run, and how each method compares with the first one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sparsewire.experiment.events import Event
from sparsewire.measure.wire_limit import ring_bytes
from sparsewire.training.trial import Trial

FINAL_SHARE = 0.05
"""The share of the steps at the end over which the final training loss is averaged."""
_ITEM_BYTES = 4


@dataclass(frozen=True)
class Run:
    """One training. Losses are means over the ranks; `sent` is bytes of a rank in each step.

    `warmup` is the number of first steps in which hooks sent everything. `counted_by` tells how
    `sent` came about: "interface", headers included, "sparsewire" (its own count), or "computed"
    (the ring of gloo). `held_out` has pairs of a step and a loss.
    """

    task: str
    method: str
    seed: int
    warmup: int
    parameters: int
    losses: list[float]
    held_out: list[tuple[int, float]]
    step_s: list[float]
    sent: list[float]
    counted_by: str

    @classmethod
    def of(cls, trial: Trial, ranks: int, trained: Event) -> Run:
        """The run that rank 0 reported."""
        sent, counted_by = trained["sent"], "sparsewire" if trial.interface is None else "interface"
        if sent is None:
            ring = ring_bytes(_ITEM_BYTES * trained["parameters"], ranks)
            sent, counted_by = [ring] * trial.steps, "computed"
        return cls(
            task=trial.task,
            method=trial.method,
            seed=trial.seed,
            warmup=trial.warmup,
            parameters=trained["parameters"],
            losses=trained["losses"],
            held_out=[(step, loss) for step, loss in trained["held_out"]],
            step_s=trained["step_s"],
            sent=sent,
            counted_by=counted_by,
        )

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
        """That of the second half: DIANA's messages grow at first, with its shifts."""
        return median(self.step_s[len(self.step_s) // 2 :])


@dataclass(frozen=True)
class Finding:
    """A method on a task: means over the seeds, and the same over what the first method has.

    `timed` are the steps on the links, where there are any, with bytes as counted there.
    """

    task: str
    method: str
    final_loss: float
    loss_ratio: float
    held_out_loss: float
    held_out_ratio: float
    sent: float
    counted_by: str
    fewer_bytes: float
    step_s: float
    speed_up: float
    timed_sent: float | None


@dataclass(frozen=True)
class Report:
    """All runs; `timed` are those on emulated links, `trained` the whole ones on loopback."""

    ranks: int
    link: str | None
    corpus: str | None
    trained: list[Run]
    timed: list[Run]

    def findings(self) -> Iterator[Finding]:
        """One for each task and method."""
        for task in dict.fromkeys(run.task for run in self.trained):
            of_task = [run for run in self.trained if run.task == task]
            timed = [run for run in self.timed if run.task == task] or of_task
            for method in dict.fromkeys(run.method for run in of_task):
                yield self._finding(method, of_task, timed)

    def _finding(self, method: str, trained: Sequence[Run], timed: Sequence[Run]) -> Finding:
        reference, own = _same(trained, trained[0].method), _same(trained, method)
        on_link, dense_on_link = _same(timed, method), _same(timed, trained[0].method)
        step_s = _step_s(on_link)
        sent = fmean(run.sent_per_step for run in own)
        return Finding(
            task=own[0].task,
            method=method,
            final_loss=fmean(run.final_loss for run in own),
            loss_ratio=_ratio([r.final_loss for r in own], [r.final_loss for r in reference]),
            held_out_loss=fmean(run.held_out_loss for run in own),
            held_out_ratio=_ratio(
                [r.held_out_loss for r in own], [r.held_out_loss for r in reference]
            ),
            sent=sent,
            counted_by=own[0].counted_by,
            fewer_bytes=fmean(run.sent_per_step for run in reference) / sent,
            step_s=step_s,
            speed_up=_step_s(dense_on_link) / step_s,
            timed_sent=fmean(r.sent_per_step for r in on_link) if self.timed else None,
        )

    def save(self, file: Path, conditions: dict[str, Any]) -> None:
        """Write everything as JSON."""
        findings = [asdict(finding) for finding in self.findings()]
        everything = {"conditions": conditions, "findings": findings, **asdict(self)}
        file.write_text(json.dumps(everything, indent=1) + "\n")


def _same(runs: Sequence[Run], method: str) -> list[Run]:
    return [run for run in runs if run.method == method]


def _ratio(own: Sequence[float], reference: Sequence[float]) -> float:
    """The ratio of the means; every seed counts alike."""
    return fmean(own) / fmean(reference)


def _step_s(runs: Sequence[Run]) -> float:
    return median(run.median_step_s for run in runs)
