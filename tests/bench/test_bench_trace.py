"""Recorded masks replayed: every rank gets its own, and results are checked as with patterns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sparsewire.errors import ExperimentError, InputError
from sparsewire.profile.records import trace
from sparsewire.profile.records.trace import Head, Mask
from sparsewire.tools.bench.job import BenchOptions
from sparsewire.tools.bench.traced import Traces, replay
from sparsewire.tools.cli.bench import bench

ELEMENTS = (1000, 70_000)
STEPS = (7, 9, 14)

pytestmark = pytest.mark.timeout(120)


def mask_of(rank: int, step: int, bucket: int) -> Mask:
    return np.random.default_rng([rank, step, bucket]).random(ELEMENTS[bucket]) < 0.05


def write(folder: Path, ranks: int = 2, dtype: str = "float64") -> None:
    for rank in range(ranks):
        records = [
            trace.pack(Head(step, bucket, [bucket], elements, dtype), mask_of(rank, step, bucket))
            for step in STEPS
            for bucket, elements in enumerate(ELEMENTS)
        ]
        trace.append(trace.path_of(folder, rank), records)


def test_ranks_replay_their_own_masks(tmp_path: Path) -> None:
    write(tmp_path)
    for rank in range(5):
        # Ranks that nobody recorded get what the recorded ones had in later steps.
        step = STEPS[(1 + rank // 2) % 3]
        part = replay(str(tmp_path), "step 9, bucket 1", np.dtype(np.float32), 1, rank)
        dense = part.dense().reshape(-1)
        np.testing.assert_array_equal(dense != 0, mask_of(rank % 2, step, 1))
        assert dense.dtype == np.float32


def test_every_bucket_of_every_step_is_a_case(tmp_path: Path) -> None:
    write(tmp_path)
    job = BenchOptions(trace=str(tmp_path)).job(ranks=2)
    assert job.dtype == "float64"
    assert [case.elements for case in job.cases] == [1000, 70_000] * 3
    first = job.cases[0]
    assert first.pattern == "step 7, bucket 0"
    assert first.density == np.mean([mask_of(rank, 7, 0).mean() for rank in range(2)])


def test_one_file_is_a_trace_of_one_rank(tmp_path: Path) -> None:
    write(tmp_path)
    traces = Traces.of(trace.path_of(tmp_path, 1))
    assert traces.ranks == 1
    np.testing.assert_array_equal(traces.mask("step 7, bucket 0", 2), mask_of(1, 14, 0))


def test_what_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace in"):
        Traces.of(tmp_path)
    write(tmp_path)
    with pytest.raises(ExperimentError, match="its own sizes"):
        BenchOptions(trace=str(tmp_path), elements="1000").job(ranks=2)
    other = Head(99, 0, [0], 1000, "float64")
    trace.append(trace.path_of(tmp_path, 1), [trace.pack(other, mask_of(0, 7, 0))])
    with pytest.raises(InputError, match="another run"):
        Traces.of(tmp_path)


@pytest.mark.parametrize("input", ["dense", "sparse"])
def test_the_command_replays_on_loopback(tmp_path: Path, input: str) -> None:
    write(tmp_path, dtype="float32")
    report = tmp_path / "report.json"
    options = ["--against", "gloo", "--iterations", "3", "--input", input, "--json", str(report)]
    files = ["--trace", str(tmp_path), "--plot", str(tmp_path / "plot.png")]
    outcome = CliRunner().invoke(bench, ["all_reduce", *files, *options])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(report.read_text())
    assert found["cluster"]["ranks"] == 2
    assert len(found["results"]) == 6
    for result in found["results"]:
        assert set(result["backends"]) == {"gloo", "sparsewire"}
