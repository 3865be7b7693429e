"""Profiles for tests: an embedding and a layer, trained for some steps by some ranks."""

from __future__ import annotations

from pathlib import Path

from sparsewire.profile.records.recorded import (
    Bucket,
    Parameter,
    ParameterDensity,
    RankProfile,
    Recorded,
    Step,
    save,
)

TABLE, LAYER = [20_000, 64], [512, 512]
TABLE_SIZE, LAYER_SIZE = 20_000 * 64, 512 * 512
READY_S = (0.02, 0.05)
FORWARD_S, WAITED_S = 0.03, 0.2
PARAMETERS = [
    Parameter("embedding.weight", TABLE, "float32", False),
    Parameter("layer.weight", LAYER, "float32", False),
]


def recorded(
    ranks: int = 4,
    steps: int = 12,
    density: float = 0.003,
    union: float | None = 0.025,
    backend: str = "gloo",
) -> Recorded:
    """`density` is the share of the embedding's elements, of whole rows; every third is sampled."""
    profiles = [
        RankProfile(
            rank=rank,
            world_size=ranks,
            host=f"host{rank}",
            local_world_size=1,
            backend=backend,
            torch="2.13.0",
            block=256,
            parameters=PARAMETERS,
            steps=[step(number, density, union) for number in range(steps)],
        )
        for rank in range(ranks)
    ]
    return Recorded(profiles)


def step(number: int, density: float, union: float | None) -> Step:
    is_sampled = number % 3 == 0
    blocks = 1 - (1 - density) ** 4
    seen = (1.0, 1.0, 1.0), (density, blocks, union)
    buckets = [
        bucket(0, 1, LAYER_SIZE, *(seen[0] if is_sampled else (None, None, None))),
        bucket(1, 0, TABLE_SIZE, *(seen[1] if is_sampled else (None, None, None))),
    ]
    densities = [ParameterDensity(0, density, blocks), ParameterDensity(1, 1.0, 1.0)]
    slow = 0.01 if is_sampled else 0.0
    backward = WAITED_S + slow
    return Step(
        number, backward + FORWARD_S, backward, is_sampled, buckets, densities if is_sampled else []
    )


def bucket(
    number: int,
    parameter: int,
    size: int,
    elements: float | None,
    blocks: float | None,
    union: float | None,
) -> Bucket:
    ready = READY_S[number]
    return Bucket(
        number, [parameter], size, 4 * size, "float32", ready, ready, WAITED_S, elements, blocks,
        union,
    )  # fmt: skip


def saved(directory: Path, profile: Recorded) -> Path:
    """The directory, with the files of all ranks."""
    for rank in profile.ranks:
        save(rank, directory)
    return directory
