"""What came of a comparison: the problem in numbers, every run, and all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsewire.measure.conditions import conditions
from sparsewire.optimize.compare.experiment import Experiment, condition_number
from sparsewire.optimize.compare.limits import Limits
from sparsewire.optimize.compare.link import Link
from sparsewire.optimize.compare.request import Request
from sparsewire.optimize.compare.run import Run


@dataclass(frozen=True)
class Setting:
    """What was minimised, after all defaults are known."""

    data: str
    model: str
    workers: int
    simulated: bool
    """Whether one process played all workers."""
    rows: int
    """Of all workers; what could not be dealt out evenly is left out."""
    dimension: int
    split: str
    l2: float
    l1: float
    smoothness: float
    """L, of f."""
    worker_smoothness: float
    """The largest L_i."""
    row_smoothness: float
    """L_max, the largest of a single row."""
    condition: float
    """L / mu."""
    limits: Limits
    """Where each method ends at the latest."""
    link: Link
    lowest: float
    """F(x*)."""
    first_distance: float
    """|x - x*|^2 at the start."""

    @classmethod
    def of(cls, experiment: Experiment, limits: Limits, simulated: bool) -> Setting:
        request, problem = experiment.request, experiment.problem
        return cls(
            data=Path(request.data).name,
            model=request.model,
            workers=problem.workers,
            simulated=simulated,
            rows=sum(problem.m),
            dimension=problem.dimension,
            split=request.split,
            l2=problem.l2,
            l1=problem.l1,
            smoothness=problem.L,
            worker_smoothness=max(problem.L_i),
            row_smoothness=problem.L_max,
            condition=condition_number(problem),
            limits=limits,
            link=experiment.link,
            lowest=experiment.lowest,
            first_distance=experiment.first_distance,
        )


@dataclass(frozen=True)
class Report:
    """A whole comparison."""

    request: Request
    setting: Setting
    warnings: list[str]
    runs: list[Run]

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        limits: Limits,
        warnings: list[str],
        runs: Sequence[Run],
        *,
        simulated: bool,
    ) -> Report:
        setting = Setting.of(experiment, limits, simulated)
        return cls(experiment.request, setting, warnings, list(runs))

    def record(self) -> dict[str, Any]:
        """Everything as JSON takes it; times in seconds, speeds in bits per second."""
        return {
            "request": asdict(self.request),
            "conditions": conditions(),
            "setting": asdict(self.setting),
            "warnings": self.warnings,
            "runs": [asdict(run) for run in self.runs],
        }


def save_json(record: dict[str, Any], file: Path) -> None:
    """Write a record, where numbers that JSON has no words for become null."""
    file.write_text(json.dumps(_plain(record), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
