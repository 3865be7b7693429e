"""The demo's report: averages, comparison, and the files it leaves."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sparsewire.demo.plot import save_plot
from sparsewire.demo.report import Report, Run, Setting, mean_step
from sparsewire.demo.table import findings, verdict

SETTING = Setting(
    workers=4, steps=6, seed=0, link="1gbit", corpus="text", tokens=1000, vocabulary=50
)


def _events(step_s: float, losses: list[float], sent: float | None) -> list[dict[str, Any]]:
    density = {"element": 0.02, "block": 0.03}
    steps = [
        {"event": "step", "number": number, "loss": loss, "wall_s": step_s * (number + 1)}
        for number, loss in enumerate(losses)
    ]
    trained = {
        "event": "trained",
        "losses": losses,
        "bytes_per_step": sent,
        "held_out_before": 4.0,
        "held_out_after": 3.0,
        "parameters": 1000,
        "density_sum": density,
    }
    return [*steps, trained, {"event": "alone", "step_s": 0.1, "density_rank": density}]


def _report(setting: Setting = SETTING, sent: float | None = 1e6) -> Report:
    losses = [5.0, 4.0, 3.5, 3.2, 3.1, 3.0]
    slow = Run.from_events("gloo", _events(1.0, losses, sent), setting)
    losses = [*losses[:-1], 3.0001]
    fast = Run.from_events("sparsewire", _events(0.2, losses, sent), setting)
    return Report(setting, [slow, fast])


def test_mean_step_leaves_out_the_warm_up() -> None:
    assert mean_step([9.0, 18.0, 27.0, 28.0, 29.0]) == pytest.approx(1.0)


def test_comparison() -> None:
    report = _report()
    assert report.speed_up == pytest.approx(5.0)
    assert report.loss_difference == pytest.approx(0.0001 / 3)
    assert report.runs[1].communication_s == pytest.approx(0.1)
    assert "5.0 times as fast as gloo" in verdict(report)
    assert "losses are equal" in verdict(report)


def test_uncounted_bytes_are_computed_and_called_so() -> None:
    run = _report(sent=None).runs[0]
    assert run.bytes_source == "computed"
    assert run.bytes_per_step == pytest.approx(6000)


def test_report_and_plot_are_written(tmp_path: Path) -> None:
    report = _report()
    report.save(tmp_path / "report.json")
    save_plot(report, tmp_path / "loss.png")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["comparison"]["speed_up"] == pytest.approx(5.0)
    assert [run["backend"] for run in written["runs"]] == ["gloo", "sparsewire"]
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_table_has_a_column_per_backend() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(findings(_report()))
    text = console.export_text()
    for expected in ("gloo", "sparsewire", "5.00"):
        assert expected in text
