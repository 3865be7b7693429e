"""What came of a comparison, as text, table, record and picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparsewire.experiment.report import Column, Report, table
from sparsewire.optimize.compare.descent import Descent
from sparsewire.optimize.compare.plot import by_costs
from sparsewire.optimize.compare.setting import Setting
from sparsewire.optimize.compare.task import Comparison
from sparsewire.optimize.compare.words import seconds, size


@dataclass(frozen=True)
class Compared:
    """A whole comparison, on rank 0."""

    task: Comparison
    setting: Setting
    warnings: list[str]
    runs: list[Descent]

    def record(self) -> dict[str, Any]:
        """Everything; times in seconds, speeds in bits per second."""
        return {
            "request": asdict(self.task),
            "setting": asdict(self.setting),
            "warnings": self.warnings,
            "runs": [asdict(run) for run in self.runs],
        }

    def report(self) -> Report:
        """One row for each method, with what it took until it ended."""
        shown = (str(self.setting), table(_columns(self.setting), self.runs))
        return Report(shown, self.record(), lambda: by_costs(self.setting, self.runs))


def _columns(setting: Setting) -> Sequence[Column[Descent]]:
    first = setting.first_distance
    wire = Column[Descent]("on the\nwire", lambda run: size(8 * (run.wire_bytes or 0)))
    return (
        Column("method", lambda run: run.label, is_text=True),
        Column("step", lambda run: f"{run.step_size:.3g}"),
        Column("rounds", lambda run: f"{run.last.rounds:,}"),
        Column("epochs", lambda run: f"{run.last.epochs:,.4g}"),
        Column("sent per\nworker", lambda run: size(run.last.bits)),
        *([] if setting.simulated else [wire]),
        Column("modelled\ntime", lambda run: seconds(run.last.seconds)),
        Column("|x - x*|²,\nrelative", lambda run: f"{run.last.distance / first:.1e}"),
        Column("f - f*", lambda run: f"{run.last.suboptimality:.1e}"),
        Column("", lambda run: run.ending, is_text=True),
    )
