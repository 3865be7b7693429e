"""The demo: averages, comparison, the command with what it prints and the files it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sparsewire.tools.cli.main import app
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.report import ResultFiles
from sparsewire.tools.training import corpus
from sparsewire.tools.training.corpus import Corpus
from sparsewire.tools.training.demo import Demo, demo_report, verdict
from sparsewire.tools.training.run import Trained
from sparsewire.tools.training.trial import Trial

CORPUS = Corpus("text", 1, np.zeros(1000, np.int32), 50)


def trained(backend: str, step_s: float, losses: list[float], sent: float | None) -> Trained:
    density = {"element": 0.02, "block": 0.03}
    told = {
        "losses": losses,
        "step_s": [9.0, 9.0, 9.0, *[step_s] * 3],
        "sent": sent and [sent] * 6,
        "held_out": [[0, 4.0], [6, 3.0]],
        "parameters": 1000,
        "density_sum": density,
        "alone_s": 0.1,
        "density_rank": density,
    }
    return Trained.of(Trial("lstm", backend, 6, 0, interface="eth0"), 4, told)


def whole(sent: float | None = 1e6) -> Demo:
    losses = [5.0, 4.0, 3.5, 3.2, 3.1, 3.0]
    slow = trained("gloo", 1.0, losses, sent)
    fast = trained("sparsewire", 0.2, [*losses[:-1], 3.0001], sent)
    return Demo(Cluster(4, emulated=True, link="1gbit"), CORPUS, 6, 0, [slow, fast])


def test_the_mean_step_leaves_out_the_first_ones() -> None:
    assert whole().runs[0].mean_step_s == pytest.approx(1.0)


def test_comparison() -> None:
    demo = whole()
    assert demo.speed_up == pytest.approx(5.0)
    assert demo.loss_difference == pytest.approx(0.0001 / 3)
    assert "5.0 times as fast as gloo" in verdict(demo)
    assert "losses are equal" in verdict(demo)


def test_uncounted_bytes_are_computed_and_called_so() -> None:
    run = whole(sent=None).runs[0]
    assert run.counted_by == "computed"
    assert run.sent_per_step == pytest.approx(6000)
    assert whole().runs[0].counted_by == "interface"


def test_report_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo_report(whole()).present(ResultFiles(tmp_path / "report.json", tmp_path / "loss.png"))
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["comparison"]["speed_up"] == pytest.approx(5.0)
    assert written["setting"] == {
        "workers": 4,
        "steps": 6,
        "seed": 0,
        "link": "1gbit",
        "corpus": "text",
        "tokens": 1000,
        "vocabulary": 50,
    }
    assert [run["backend"] for run in written["runs"]] == ["gloo", "sparsewire"]
    assert written["runs"][1]["wall_s"] == pytest.approx([9, 18, 27, 27.2, 27.4, 27.6])
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    for expected in ("gloo", "sparsewire", "5.00", "100 ms", "Not zero in a gradient: 2.0%"):
        assert expected in shown


@pytest.mark.timeout(300)
def test_the_command_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("sparsewire.tools.lab.available", lambda: "no root")
    monkeypatch.setattr(corpus, "MIN_TOKENS_PER_WORKER", 1000)
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text("one two three four five six seven\n" * 2000)
    options = ("--corpus", text, "--output", output, "--workers", 2, "--steps", 6)
    outcome = CliRunner().invoke(app, ["demo", *map(str, options)])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.startswith("A language model is trained 6 steps over gloo, then over")
    assert "No emulated network: no root." in outcome.output
    assert "their losses are equal" in " ".join(outcome.output.split())
    record: dict[str, Any] = json.loads((output / "report.json").read_text())
    assert record["setting"]["link"] is None
    assert record["comparison"]["loss_difference"] < 1e-4
    for run in record["runs"]:
        assert len(run["losses"]) == len(run["wall_s"]) == 6
        assert run["alone_s"] > 0
        assert run["density_rank"]["element"] <= run["density_sum"]["element"] <= 1
        assert run["held_out_after"] < run["held_out_before"]
    assert [run["bytes_source"] for run in record["runs"]] == ["computed", "sparsewire"]
    assert (output / "loss.png").exists()
    assert (output / "logs" / "gloo" / "rank1.log").exists()


@pytest.mark.parametrize("backend", ["feedback", "diana/qsgd:7", "undefined", "no-such", "cpu:no"])
def test_the_command_refuses_what_is_no_backend(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = ("--backend", "gloo", "--backend", backend, "--output", str(tmp_path / "out"))
    outcome = CliRunner().invoke(app, ["demo", *options])
    assert outcome.exit_code == 1
    assert f"backend '{backend}' is not known" in outcome.output
    assert not (tmp_path / "out").exists()
