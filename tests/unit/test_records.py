"""README and docs quote what records hold: green on this tree, red on any changed figure."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from sparsewire.tools.bench.grid import CANDIDATES, Cell
from sparsewire.tools.cli.main import app
from sparsewire.tools.training.comparison import Finding, recorded
from sparsewire.tools.training.demo import Demo
from sparsewire.tools.training.run import Trained
from sparsewire.tools.training.workloads.comparison import Measured
from sparsewire.tools.training.workloads.losses import Losses
from sparsewire.tools.training.workloads.measure import Steps

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import records
import scale
import tables

ROOT = Path(__file__).parents[2]

RECORDS = {
    "small": {
        "command": "sparsewire bench",
        "figures": {
            "all": {"runs": 1200},
            "1KiB/0.01": {"gloo_s": 0.12345, "sparsewire_s": 0.01, "speedup": 12.345, "name": "a"},
        },
    }
}


def problems(page: Path, text: str, quoted: str = "") -> list[str]:
    page.write_text(text)
    return list(tables.problems([page], RECORDS, quoted))


def test_pages_quote_what_records_hold() -> None:
    quoted = tables.QUOTED.read_text()
    assert not list(tables.problems(tables.pages(), records.load(), quoted))


def test_readme_quotes_nothing_that_the_docs_have_not() -> None:
    documented = set().union(*(sources(page) for page in (ROOT / "docs").rglob("*.md")))
    assert sources(ROOT / "README.md") - documented == set()


def sources(page: Path) -> set[str]:
    """RECORD ROW VALUE of each figure that the page has of a record."""
    text = page.read_text()
    rows = tables.IN_ROW.findall(text)
    in_rows = {
        " ".join(tables.source_of(record, row, name))
        for record, row, names in rows
        for name in names.split()
    }
    in_text = {found["source"] for found in tables.IN_TEXT.finditer(text)}
    return {source for source in in_rows | in_text if not source.endswith(" -")}


def test_command_fails_where_a_page_has_another_figure() -> None:
    check = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), "--check"]
    subprocess.run(check, check=True, timeout=50)


@pytest.mark.parametrize("name", ["README.md", "docs/benchmarks.md", "docs/compression.md"])
def test_any_changed_figure_is_found(name: str, tmp_path: Path) -> None:
    text, known, quoted = (ROOT / name).read_text(), records.load(), tables.QUOTED.read_text()
    lines = text.split("\n")
    sourced = [n for n, line in enumerate(lines) if "<!--row" in line or "<!--is" in line]
    assert sourced
    page = tmp_path / Path(name).name
    for number in sourced:
        changed = with_a_digit_more(lines[number])
        if changed == lines[number]:
            assert tables.PENDING in changed
            continue
        page.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :]]))
        found = list(tables.problems([page], known, quoted))
        assert any(f":{number + 1}: not of its record" in problem for problem in found), changed


def with_a_digit_more(line: str) -> str:
    """The line with its first sourced figure changed, if it has any."""
    for found in tables.IN_TEXT.finditer(line):
        if found["number"]:
            end = found.end("number")
            return f"{line[:end]}7{line[end:]}"
    found = re.search(r"(\d)(\D*<!--row)", line)
    if found is None or tables.PENDING in found[2]:
        return line
    return f"{line[: found.end(1)]}7{line[found.end(1) :]}"


def test_figures_that_are_not_measured_yet_come_with_their_record(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    later, known = "small 1KiB/0.01 median_s", "small 1KiB/0.01 gloo_s"
    page.write_text(f"not yet<!--is {later}-->")
    assert not list(tables.problems([page], RECORDS, ""))
    assert tables.pending([page], RECORDS) == [later]
    for name, written in (("gloo_s", "123.5 ms"), ("speedup", "12.3x")):
        page.write_text(f"not yet<!--is small 1KiB/0.01 {name}-->")
        assert list(tables.problems([page], RECORDS, ""))
        assert tables.Page(page, RECORDS).rewritten().startswith(f"{written}<!--is")
    page.write_text(f"| a | not yet<!--is {known}--> | not yet <!--row small all runs--> |")
    assert "| 1,200 <!--row" in tables.Page(page, RECORDS).rewritten()
    assert not tables.pending([page], RECORDS)


def test_processors_are_those_of_the_records(tmp_path: Path) -> None:
    page, made = tmp_path / "page.md", {"conditions": {"cpu": "Old", "simd": "sse"}}
    page.write_text("on *New*<!--cpu one-->, *New*<!--cpu two-->")
    parts = {"a": made, "b": {"conditions": {"cpu": "New"}}}
    known = {"one": {**made, "figures": {}}, "two": {**made, "parts": parts, "figures": {}}}
    written = tables.Page(page, known).rewritten()
    assert written == "on *Old, sse*<!--cpu one-->, *Old, sse; New*<!--cpu two-->"
    assert list(tables.problems([page], known, ""))


def test_figures_in_a_text_have_the_digits_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    gloo, ratio = "<!--is small 1KiB/0.01 gloo_s-->", "<!--is small 1KiB/0.01 speedup-->"
    page.write_text(f"took **9 ms**{gloo} and 9.99x{ratio}")
    written = tables.Page(page, RECORDS).rewritten()
    assert written.startswith("took **123 ms**<!--is")
    assert "12.3x<!--is" in written
    page.write_text("0.999 s<!--is small 1KiB/0.01 gloo_s-->, 1,000<!--is small all runs--> runs")
    written = tables.Page(page, RECORDS).rewritten()
    assert written.startswith("0.123 s<!--is")
    assert "1,200<!--is" in written


def test_rows_leave_cells_that_are_not_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| 1% | 5x | 1.0x | 7 <!--row small 1KiB/0.01 - speedup gloo_s--> |")
    written = tables.Page(page, RECORDS).rewritten()
    assert written == "| 1% | 5x | 12x | 123 <!--row small 1KiB/0.01 - speedup gloo_s--> |"


def test_whole_records_become_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!--table small-->\n<!--end-->")
    written = tables.Page(page, RECORDS).rewritten()
    assert "| 1KiB/0.01 | 0.12345 | 0.01 | 12.345 | a |" in written
    assert not problems(page, written)
    assert problems(page, written.replace("12.345", "12.3")) == ["page.md: not the record small"]


def test_figures_without_a_source_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for figure in ("12.3x", "45 ms", "1.5 GB/s", "7 times", "0.4% higher", "90% of the wire"):
        (found,) = problems(page, f"it is {figure} here")
        assert found == f"page.md:1: {figure!r} has no source"
        assert not problems(page, f"it is {figure} here", f"page.md: {figure}  # theirs")
    assert not problems(page, "`45 ms`, 1% of the blocks\n```\n12.3x\n```")


def test_sources_without_a_figure_are_found(tmp_path: Path) -> None:
    page, source = tmp_path / "page.md", "small 1KiB/0.01 speedup"
    for text in (f"took 12\nx<!--is {source}-->", f"the same<!--is {source}-->"):
        (found,) = problems(page, text)
        assert found.endswith("no figure right before its source")
    (found,) = problems(page, "| 1% | the same <!--row small 1KiB/0.01 speedup--> |")
    assert found == f"page.md:1: no figure for {source}"


def test_quotations_that_are_gone_are_found(tmp_path: Path) -> None:
    found = problems(tmp_path / "page.md", "nothing", "page.md: 3x  # theirs")
    assert found == ["quoted.txt: not quoted any more: page.md: 3x"]


def test_unknown_sources_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for source in ("none all runs", "small none runs", "small all none"):
        assert problems(page, f"3<!--is {source}-->") == [f"page.md:1: no record holds {source}"]
    assert problems(page, "<!--table none-->\n<!--end-->") == ["page.md: no record none"]


def test_committed_records_tell_how_they_were_made() -> None:
    for file in records.FOLDER.glob("*.json"):
        record = json.loads(file.read_text())
        assert {"command", "commit", "conditions", "figures"} <= record.keys(), file.name
        assert file.stat().st_size <= records.LARGEST_BYTES, file.name


def collected(tmp_path: Path, *command: str) -> dict[str, Any]:
    """The record of a command, by way of its JSON."""
    result = tmp_path / "made.json"
    outcome = CliRunner().invoke(app, [*command, "--json", str(result)])
    assert outcome.exit_code == 0, outcome.output
    result.with_suffix(".command").write_text(" ".join(command) + "\n")
    (tmp_path / "records").mkdir()
    records.collect(result, tmp_path / "records")
    record: dict[str, Any] = json.loads((tmp_path / "records" / "made.json").read_text())
    return record


def test_all_reduce_leaves_a_record(tmp_path: Path) -> None:
    sizes = ("--bytes", "4KiB", "--density", "1,0.1", "--ranks", "2", "--against", "gloo")
    record = collected(tmp_path, "bench", "all_reduce", *sizes, "--iterations", "2")
    assert record["command"].startswith("bench all_reduce")
    assert record["conditions"]["python"]
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", record["commit"])
    assert set(record["figures"]) == {"1", "0.1"}
    row = record["figures"]["1"]
    assert row["speedup"] == pytest.approx(row["gloo_s"] / row["sparsewire_s"], rel=1e-3)
    assert row["sent_bytes"] > 4096


def test_operators_leave_a_record(tmp_path: Path) -> None:
    options = ("--operator", "natural,top-k:0.1", "--elements", "10000", "--repetitions", "1")
    record = collected(tmp_path, "bench", "operators", *options)
    assert set(record["figures"]) == {"natural", "top-k:0.1"}
    assert record["figures"]["natural"]["omega"] == 0.125
    assert record["figures"]["top-k:0.1"]["encode_bytes_per_s"] > 0


def test_grids_leave_a_record() -> None:
    times = {name: 0.002 for name in CANDIDATES}
    cell = Cell(1024, 0.01, auto_s=0.003, chosen="stream", predicted_s=None, seconds=times)
    found = {"cells": [{**asdict(cell), "ratio": cell.ratio}], "share_close": 0.0}
    rows = records.figures_of(found)
    assert rows["all"] == {"close_share": 0.0, "cells": 1}
    assert rows["1KiB/0.01"]["auto_s"] == 0.003
    assert rows["1KiB/0.01"]["stream_s"] == 0.002
    assert rows["1KiB/0.01"]["over_best"] == 1.5


def test_trainings_leave_a_record() -> None:
    dense = Finding(
        "lstm", "gloo", 3.5, 1.0, 3.9, 1.0, 25e6, "computed", 1.0, 2.2, 1.0, None, [1.0, 1.0]
    )
    less = Finding(
        "lstm", "feedback/top-k:0.1", 3.6, 1.02, 4, 1.03, 1e6, "own", 25, 0.2, 11, 1e6, [1.01, 1.03]
    )
    rows = records.figures_of({"findings": [recorded(dense), recorded(less)]})
    assert set(rows) == {"lstm/gloo", "lstm/feedback"}
    assert rows["lstm/feedback"]["final_loss_share"] == pytest.approx(0.02)
    assert rows["lstm/feedback"]["least_final_loss_share"] == pytest.approx(0.01)
    assert rows["lstm/feedback"]["most_final_loss_share"] == pytest.approx(0.03)
    assert rows["lstm/feedback"]["seeds"] == 2
    assert rows["lstm/feedback"]["speedup"] == 11


def of_method(name: str, seconds: list[float], losses: Losses | None = None) -> dict[str, Any]:
    steps = Steps(seconds, 0.1, [0.7, 0.6], None)
    measured = Measured(name, steps, 2.0 / seconds[0], 1.5, 2.5, 9e6, losses)
    return {**asdict(measured), "step_s": seconds[0]}


DENSITY = {"element": 0.01, "block": 0.02, "union_element": 0.03, "union_block": 0.05}


def of_workload(*methods: dict[str, Any]) -> dict[str, Any]:
    found = {"name": "lstm", "parameters": 5, "density": DENSITY, "methods": list(methods)}
    return records.figures_of({"workloads": [found]})


def test_workloads_leave_a_record() -> None:
    rows = of_workload(
        of_method("gloo", [2.0, 2.2], Losses(9, [0.5, 0.4], [1.0, 1.0])),
        of_method("feedback/block-top-k:0.01", [0.2], Losses(9, [0.55, 0.42], [1.1, 1.05])),
    )
    assert set(rows) == {"lstm", "lstm/gloo", "lstm/feedback"}
    assert rows["lstm"]["union_block_share"] == 0.05
    assert rows["lstm/gloo"]["last_loss"] == 0.6
    assert rows["lstm/gloo"]["slowest_s"] == 2.2
    feedback = rows["lstm/feedback"]
    assert feedback["speedup"] == pytest.approx(10)
    assert (feedback["seeds"], feedback["trained_steps"]) == (2, 9)
    assert feedback["final_loss_share"] == pytest.approx(0.075)
    assert feedback["most_final_loss_share"] == pytest.approx(0.1)


def test_workloads_are_compared_with_the_best_of_gloo() -> None:
    methods = {"gloo": 2.0, "sparsewire": 0.2, "gloo-sparse": 0.05, "sparsewire-sparse": 0.04}
    rows = of_workload(*(of_method(name, [seconds]) for name, seconds in methods.items()))
    assert rows["lstm"]["sparse_speedup"] == pytest.approx(1.25)
    assert rows["lstm"]["best_speedup"] == pytest.approx(1.25)
    without = of_workload(of_method("gloo", [2.0]), of_method("sparsewire", [0.5]))
    assert without["lstm"]["sparse_speedup"] is None
    assert without["lstm"]["best_speedup"] == pytest.approx(4)


def test_a_part_takes_the_place_of_its_rows_alone(tmp_path: Path) -> None:
    old = {"lstm": {"x": 1}, "lstm/gloo": {"x": 2}, "ncf": {"x": 3}}
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"command": "old", "commit": "a", "conditions": {}, "figures": old}))
    made = {"command": "new", "commit": "b", "conditions": {"cpu": "c"}}
    record = records.with_part(file, "lstm", made, {"lstm": {"x": 4}})
    assert record["figures"] == {"ncf": {"x": 3}, "lstm": {"x": 4}}
    assert record["command"] == "old"
    assert record["parts"] == {"lstm": made}


def test_the_demo_leaves_a_record() -> None:
    runs = [trained("gloo", [0.9, 0.8]), trained("sparsewire", [0.09, 0.08])]
    cluster = SimpleNamespace(ranks=2, link=None)
    corpus = SimpleNamespace(source="text", tokens=[], vocabulary=1)
    found = Demo(cluster=cluster, corpus=corpus, steps=2, seed=0, runs=runs).record()
    (row,) = records.figures_of(found).values()
    assert row["speedup"] == pytest.approx(row["gloo_s"] / row["sparsewire_s"])
    assert row["loss_difference"] == 0


def test_the_demo_of_weights_leaves_a_record() -> None:
    figures = {
        "version_s": 1.0,
        "version_bytes": 40,
        "idle_s": 0.2,
        "pause_s": 0.001,
        "changed_share": None,
        "elapsed_s": 50.0,
        "first_reward": 0.5,
        "last_reward": 0.7,
        "parameters": 1000,
    }
    found = {
        "setting": {"versions": 50},
        "transfers": [{"transfer": "whole", **figures, "bits": []}],
        "against_whole": {"speed_up": 2.0, "fewer_bytes": 50.0, "is_exact": True},
    }
    rows = records.figures_of(found)
    assert rows["whole"] == figures
    assert rows["against"]["speedup"] == 2
    assert rows["against"]["versions"] == 50


def trained(backend: str, step_s: list[float]) -> Trained:
    return Trained(
        task="lstm",
        averaging=backend,
        seed=0,
        warmup=0,
        parameters=1,
        losses=[2.0, 1.0],
        held_out=[(0, 2.0), (2, 1.0)],
        step_s=step_s,
        alone_s=0.01,
        sent=[1.0, 1.0],
        counted_by="computed",
        density_rank=None,
        density_sum={},
    )


def test_what_a_rank_does_to_meet_others_is_measured_with_real_records() -> None:
    found = scale.parts(16)
    assert 400 < found["record_bytes"] < 2000
    assert found["decode_s"] > 0


def test_programs_keep_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(records, "commit", lambda: "0123abc")
    monkeypatch.setattr(sys, "argv", ["made.py", "--record"])
    for row in ("one", "two", "one"):
        records.keep("made", row, {"step_s": 1.25})
    found = json.loads((tmp_path / "made.json").read_text())
    told = {"command": "python benchmarks/made.py --record", "step_s": 1.25}
    assert found["figures"] == {"one": told, "two": told}
    assert found["conditions"]["cpu"]


@pytest.mark.parametrize("program", sorted(records.FOLDER.parent.rglob("*.py")))
def test_programs_import_what_is_there(program: Path) -> None:
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparsewire"):
            assert node.module
            module = importlib.import_module(node.module)
            for name in (alias.name for alias in node.names):
                assert hasattr(module, name) or importlib.import_module(f"{node.module}.{name}")
