"""The grid that shows how well auto chooses: its cells, its report, and a small run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparsewire.tools.bench import grid
from sparsewire.tools.bench.grid import CANDIDATES, FULL, QUICK, Cell, heat_map, verdict
from sparsewire.tools.cli.bench import bench


def cell(auto_s: float, chosen: str = "stream", size: int = 1 << 20, density: float = 0.1) -> Cell:
    seconds = dict(zip(CANDIDATES, (0.3, 0.2, 0.4, 0.1), strict=True))
    return Cell(size, density, auto_s, chosen, 0.1, seconds)


def test_auto_is_compared_with_the_best_algorithm() -> None:
    assert cell(0.11).best == "stream"
    assert cell(0.12).ratio == pytest.approx(1.2)
    assert [cell(seconds).is_close for seconds in (0.09, 0.114, 0.116)] == [True, True, False]


def test_the_share_of_well_chosen_cells_is_told() -> None:
    cells = [cell(0.1), cell(0.1), cell(0.3, "allgather")]
    assert "in 2 of 3 cells (67%)" in verdict(cells)


def test_the_full_grid_reaches_from_small_to_large() -> None:
    job = FULL.job(ranks=2, seed=1, timeout=30.0)
    assert (FULL.sizes[0], FULL.sizes[-1]) == (1024, 100_000_000)
    assert (FULL.densities[0], FULL.densities[-1]) == (1e-4, 1.0)
    assert len(job.cases) == len(FULL.sizes) * len(FULL.densities)
    assert len(QUICK.sizes) * len(QUICK.densities) < len(job.cases) / 3


def test_the_heat_map_is_a_picture(tmp_path: Path) -> None:
    cells = [cell(0.1 * i, "allgather", size, 10**-i) for i in (1, 2) for size in (1024, 10**8)]
    heat_map(cells, "title").savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_measures_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(grid, "QUICK", grid.Grid((1024, 1 << 16), (0.01, 1.0), cell_s=0.05))
    record, plot = tmp_path / "grid.json", tmp_path / "grid.png"
    files = ["--json", str(record), "--plot", str(plot)]
    outcome = CliRunner().invoke(bench, ["grid", "--ranks", "2", "--quick", *files])
    assert outcome.exit_code == 0, outcome.output
    assert "of 4 cells" in outcome.output
    cells = json.loads(record.read_text())["cells"]
    assert [(c["bytes"], c["density"]) for c in cells] == [
        (1024, 0.01),
        (1024, 1.0),
        (65536, 0.01),
        (65536, 1.0),
    ]
    for found in cells:
        assert set(found["seconds"]) == set(CANDIDATES)
        assert found["chosen"] in CANDIDATES
        assert found["ratio"] == pytest.approx(found["auto_s"] / found["seconds"][found["best"]])
    assert plot.exists()


def test_the_command_refuses_one_host_of_one_rank() -> None:
    outcome = CliRunner().invoke(bench, ["grid", "--hosts", "1"])
    assert outcome.exit_code == 1
    assert "error: " in outcome.output
