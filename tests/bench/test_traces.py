"""The traces in benchmarks/traces: each can be read and replayed, and fits its profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparsewire.profile.records import trace
from sparsewire.profile.records.recorded import load
from sparsewire.tools.bench.traced import Traces
from sparsewire.tools.training.workloads.catalogue import WORKLOADS

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"


def test_there_is_a_trace_of_each_workload() -> None:
    assert {path.name for path in TRACES.iterdir() if path.is_dir()} == set(WORKLOADS)


def test_traces_are_small() -> None:
    assert sum(path.stat().st_size for path in TRACES.rglob("*")) < 5_000_000


@pytest.mark.parametrize("name", WORKLOADS)
def test_masks_have_the_densities_of_their_profile(name: str) -> None:
    recorded, traces = load(TRACES / name), Traces.of(TRACES / name)
    assert traces.ranks == len(recorded.ranks)
    for rank in recorded.ranks:
        masks = {
            (each.head.step, each.head.bucket): each.mask()
            for each in trace.read(trace.path_of(TRACES / name, rank.rank))
        }
        for step in rank.steps:
            for bucket in step.buckets:
                mask = masks[step.step, bucket.bucket]
                assert np.mean(mask) == pytest.approx(bucket.element_density)
