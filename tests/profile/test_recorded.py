"""Profiles come back as they were written; what is missing or odd is told with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparsewire.errors import InputError
from sparsewire.profile.records.recorded import (
    Bucket,
    Parameter,
    ParameterDensity,
    RankProfile,
    Step,
    load,
    path_of,
    save,
)


def profile(rank: int = 0, world_size: int = 2) -> RankProfile:
    bucket = Bucket(0, [0], 1024, 4096, "float32", 0.1, 0.1, 0.2, 0.5, 0.75, 0.9)
    unseen = replace(bucket, element_density=None, block_density=None, union_block_density=None)
    steps = [
        Step(7, 0.4, 0.2, True, [bucket], [ParameterDensity(0, 0.5, 0.75)]),
        Step(8, 0.4, 0.2, False, [unseen], []),
    ]
    parameters = [Parameter("emb.weight", [64, 16], "float32", False)]
    return RankProfile(rank, world_size, "a", 1, "gloo", "2.13.0", 256, parameters, steps)


def test_comes_back_as_written(tmp_path: Path) -> None:
    written = [profile(rank) for rank in range(2)]
    for each in written:
        save(each, tmp_path / "new")
    assert load(tmp_path / "new").ranks == written
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "rank-0.json",
        "rank-1.json",
    ]


def test_ignores_what_it_does_not_know(tmp_path: Path) -> None:
    path = save(profile(world_size=1), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    assert load(tmp_path).ranks == [profile(world_size=1)]


def test_missing_rank_is_named(tmp_path: Path) -> None:
    save(profile(), tmp_path)
    with pytest.raises(InputError, match=r"rank-1\.json .*No such file"):
        load(tmp_path)


def test_ranks_of_different_runs_are_refused(tmp_path: Path) -> None:
    save(profile(0), tmp_path)
    save(replace(profile(1), world_size=3), tmp_path)
    with pytest.raises(InputError, match="another run"):
        load(tmp_path)


def set_in(document: Any, places: str, value: Any) -> None:
    *before, last = [int(place) if place.isdigit() else place for place in places.split("/")]
    for place in before:
        document = document[place]
    document[last] = value


@pytest.mark.parametrize(
    ("places", "value", "told"),
    [
        ("version", 2, "version 2"),
        ("rank", 1, "rank 1"),
        ("block", "256", "block is '256'"),
        ("block", True, "block is True"),
        ("parameters", {}, "parameters is not a list"),
        ("parameters/0", 3, r"parameters\[0\] is not an object"),
        ("steps/0/duration_s", -1, r"steps\[0\].duration_s is -1"),
        ("steps/0/duration_s", 1e999, r"steps\[0\].duration_s is inf"),
        ("steps/0/buckets/0/block_density", 1.5, "block_density is 1.5"),
        ("steps/0/buckets/0/parameters", [1], "does not list"),
        ("steps/0/buckets/0/elements", 0, "empty bucket"),
    ],
)
def test_odd_fields_are_named(tmp_path: Path, places: str, value: Any, told: str) -> None:
    path = save(profile(world_size=1), tmp_path)
    document = json.loads(path.read_text())
    set_in(document, places, value)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=told):
        load(tmp_path)


def without_steps(text: str) -> str:
    return json.dumps({key: value for key, value in json.loads(text).items() if key != "steps"})


@pytest.mark.parametrize(
    ("spoiled", "told"),
    [
        (without_steps, "steps is missing"),
        (lambda text: text[:-5], "is not a profile"),
        (lambda text: "[]", "not an object"),
        (lambda text: "[" * 100_000, "is not a profile"),
    ],
)
def test_odd_files_are_named(tmp_path: Path, spoiled: Callable[[str], str], told: str) -> None:
    path = save(profile(world_size=1), tmp_path)
    path.write_text(spoiled(path.read_text()))
    with pytest.raises(InputError, match=told):
        load(tmp_path)


def test_files_of_ranks_have_their_number(tmp_path: Path) -> None:
    assert path_of(tmp_path, 12).name == "rank-12.json"
