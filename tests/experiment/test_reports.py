"""What experiments hand over: tables, records with their conditions, pictures, files; progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sparsewire.errors import ExperimentError
from sparsewire.tools.experiment.progress import bars
from sparsewire.tools.experiment.report import Column, Report, ResultFiles, new_figure, table

_COLUMNS = (
    Column[float]("value", lambda value: f"{value:g}"),
    Column[float]("name", lambda value: f"[{value}]", is_text=True),
)


def test_a_table_has_a_line_for_each_row() -> None:
    shown = table(_COLUMNS, [1.5, 22.0], "title", stands_out=lambda value: value > 20)
    console = Console(width=40)
    with console.capture() as capture:
        console.print(shown, markup=False)
    assert [line.split() for line in capture.get().splitlines() if line.strip()][-2:] == [
        ["1.5", "[1.5]"],
        ["22", "[22.0]"],
    ]
    assert [row.style for row in shown.rows] == [None, "yellow"]


def test_a_report_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"best": 1.5, "worst": float("inf"), "parts": ({"rate": float("nan")},)}
    report = Report(
        ["[all] of " + "x" * 120, table(_COLUMNS, [1.0])], record, lambda: new_figure(1, 1)
    )
    files = ResultFiles(tmp_path / "out.json", tmp_path / "out.png")
    report.present(files)
    assert capsys.readouterr().out.startswith("[all] of " + "x" * 120 + "\n")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written.pop("conditions")["cpu"] == files.conditions["cpu"]
    assert written == {"best": 1.5, "worst": None, "parts": [{"rate": None}]}
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("json_file", "plot", "reason"),
    [
        ("no-folder/out.json", None, "there is no folder"),
        (".", None, "it is a folder"),
        (None, "out.xyz", "its name must end in one of"),
    ],
)
def test_files_that_cannot_be_written_are_known_before_the_work(
    tmp_path: Path, json_file: str | None, plot: str | None, reason: str
) -> None:
    paths = (None if name is None else tmp_path / name for name in (json_file, plot))
    with pytest.raises(ExperimentError, match=reason):
        ResultFiles(*paths).checked()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"cannot write .*gone/out.json: No such file"):
        Report([], {}).present(ResultFiles(tmp_path / "gone" / "out.json"))


@pytest.mark.parametrize(("stay", "lines"), [(False, ""), (True, "one: beginning\ntwo: too\n")])
def test_without_a_terminal_there_is_a_line_for_each_bar_that_stays(
    capsys: pytest.CaptureFixture[str], stay: bool, lines: str
) -> None:
    with bars(stay=stay) as move:
        move("one", 0, 3, "beginning")
        move("one", 2, 3, "state")
        move("two", 0, 3, "too")
    assert capsys.readouterr() == ("", lines)


def test_standard_output_is_kept_for_events() -> None:
    code = """
import os
from sparsewire.tools.experiment.crew import claim_stdout
tell = claim_stdout()
print("a library")
os.system("echo its child")
tell("step", number=3)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {"event": "step", "number": 3}
    ]
    assert "a library" in ended.stderr
    assert "its child" in ended.stderr
