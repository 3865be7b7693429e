"""`sparsewire optimize` as users start it: alone, with workers, under torchrun and mpirun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import CALL, optimize
from made_data import write_file
from mpirun import ENVIRONMENT, MPIRUN, require_mpi

PNG = b"\x89PNG"


def run(*command: object) -> str:
    """Run a command of its own process; returns what it wrote."""
    environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, timeout=150
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def check_record(file: Path, ranks: int) -> None:
    record = json.loads(file.read_text())
    assert record["setting"]["ranks"] == ranks
    first, *_, last = record["epochs"]
    assert last["objective"] < first["objective"]
    assert (last["bytes_sent"] > 0) == (ranks > 1)


@pytest.mark.parametrize("method", ["sgd", "bcd"])
def test_workers_train_and_leave_record_and_plot(data: Path, tmp_path: Path, method: str) -> None:
    record, plot = tmp_path / "run.json", tmp_path / "run.png"
    options = ["--method", method, "--workers", 2, "--epochs", 3]
    outcome = optimize(data, *options, "--json", record, "--plot", plot)
    assert outcome.exit_code == 0, outcome.output
    assert "2 ranks" in outcome.output
    check_record(record, ranks=2)
    assert plot.read_bytes().startswith(PNG)


def test_without_a_launcher_there_is_one_rank(data: Path, tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    outcome = optimize(data, "--model", "svm", "--epochs", 25, "--test-share", 0, "--json", record)
    assert outcome.exit_code == 0, outcome.output
    check_record(record, ranks=1)
    # Only about ten of many epochs are shown, the last one always.
    assert 12 < len(outcome.output.splitlines()) < 22
    assert " 25 " in outcome.output


def test_classes_of_choice_are_in_the_record(tmp_path: Path) -> None:
    file = write_file(tmp_path / "many", classes=range(1, 6))
    record = tmp_path / "run.json"
    outcome = optimize(file, "--positive", "2,5", "--epochs", 1, "--json", record)
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(record.read_text())["setting"]["positive"] == [2.0, 5.0]


@pytest.mark.timeout(180)
def test_under_torchrun_rank_0_alone_reports(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    record = tmp_path / "run.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    command = [sys.executable, "-c", CALL, "optimize", data, "--epochs", 2, "--json", record]
    output = run(*torchrun, "--nproc-per-node", 2, *command)
    check_record(record, ranks=2)
    assert output.count("SGD over sparse all_reduce") == 1


@pytest.mark.timeout(180)
def test_under_mpirun_the_ranks_meet_over_mpi(data: Path, tmp_path: Path) -> None:
    require_mpi()
    record = tmp_path / "run.json"
    run(MPIRUN, "-n", 2, sys.executable, "-c", CALL, "optimize", data, "--json", record)
    check_record(record, ranks=2)


def test_error_of_a_worker_is_shown(data: Path) -> None:
    outcome = optimize(data.with_name("missing"), "--workers", 2)
    assert outcome.exit_code == 1
    assert "error: cannot read" in outcome.output
    assert "no such file" in outcome.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "bcd", "--step", "1"], "--step is no option of --method bcd"),
        (["--test-share", "1"], "--test-share must be in"),
        (["--positive", "7"], "no such class; there are -1, 1"),
        (["--algorithm", "carrier_pigeon"], "carrier_pigeon"),
        (["--epochs", "1", "--json", "/nowhere/run.json"], "cannot write /nowhere/run.json"),
    ],
)
def test_bad_options_are_refused_in_words(data: Path, options: list[str], message: str) -> None:
    outcome = optimize(data, *options)
    assert outcome.exit_code == 1
    assert "error: " in outcome.output
    assert message in outcome.output


def test_workers_under_a_launcher_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    outcome = optimize(data, "--workers", 2)
    assert outcome.exit_code == 1
    assert "leave out --workers" in outcome.output


def test_missing_extra_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsewire.tools.experiment.extras.find_spec", lambda name: None)
    outcome = optimize(data)
    assert outcome.exit_code == 1
    assert 'pip install "sparsewire[optimize]"' in outcome.output
