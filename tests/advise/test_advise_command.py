"""`sparsewire advise`: what it prints, as text and as JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from recordings import recorded, saved

from sparsewire.tools.cli.main import app


def advise(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["advise", *map(str, arguments)])


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    return saved(tmp_path / "sparse", recorded())


def test_says_what_pays_and_what_to_change(sparse: Path) -> None:
    result = advise(sparse, "--link", "10mbit", "--link", "1gbit")
    assert result.exit_code == 0, result.output
    # Most of what is left with sparse=True is a dense layer, which gloo sends as well.
    assert "At 10 Mbit/s sparsewire makes no difference" in result.output
    assert "Without sparsewire, gloo, sparse=True makes a step" in result.output
    assert 'torch.distributed.init_process_group("sparsewire")' in result.output
    assert result.output.index("To mind") < result.output.index("in your script")
    assert "To watch: Compare the loss" in result.output
    assert "embedding.weight" not in result.output.partition("in your script")[0]


def test_says_plainly_where_it_does_not_pay(tmp_path: Path) -> None:
    dense = saved(tmp_path, recorded(density=1.0, union=1.0))
    result = advise(dense, "--link", "100gbit")
    assert "At 100 Gbit/s sparsewire makes no difference that this can tell" in result.output
    assert "in your script" not in result.output


def test_one_rank_has_nobody_to_send_to(tmp_path: Path) -> None:
    alone = saved(tmp_path, recorded(ranks=1, union=None))
    result = advise(alone, "--link", "1gbit", "--hosts", 1)
    assert "one rank has nobody to send to" in result.output
    assert "One rank was recorded" in result.output


def test_json_has_all_of_it(sparse: Path) -> None:
    result = advise(sparse, "--link", "1gbit", "--hosts", 8, "--ranks", 2, "--json")
    found = json.loads(result.output)
    assert (found["hosts"], found["ranks"], found["backend"]) == (8, 2, "gloo")
    (link,) = found["links"]
    assert link["link_bits_per_s"] == 1e9
    rows = {row["method"]: row for row in link["methods"]}
    assert list(rows) == ["gloo", "gloo-sparse", "sparsewire", "sparse", "feedback", "diana"]
    assert rows["gloo"]["speedup"] == 1
    assert all(set(row["more_hosts_s"]) == {"16"} for row in rows.values())
    assert link["fastest"] == min(rows, key=lambda name: rows[name]["step_s"])
    assert link["best_lossless"] in found["lines"]
    assert all(row["watch"] or row["lossless"] for row in rows.values())
    assert len(found["curves"]) == 5


def test_nccl_is_compared_where_it_was_recorded(tmp_path: Path) -> None:
    profile = saved(tmp_path, recorded(backend="nccl"))
    result = advise(profile, "--link", "1gbit")
    assert "Recorded: 4 ranks over nccl" in result.output
    assert "SPARSEWIRE_CUDA=engine" in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--link", "fast"], "cannot read link speed"),
        (["--report", "/nowhere/report.html"], "cannot write /nowhere/report.html"),
    ],
)
def test_mistakes_are_told(sparse: Path, arguments: list[str], told: str) -> None:
    result = advise(sparse, *arguments)
    assert result.exit_code == 1
    assert told in result.output


def test_a_directory_without_profile_is_told(tmp_path: Path) -> None:
    result = advise(tmp_path)
    assert result.exit_code == 1
    assert "rank-0.json (No such file or directory): record with" in result.output
