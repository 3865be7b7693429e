"""A recorded profile: one JSON file a rank, as `sparsewire profile` writes and others read them.

Times are seconds, densities shares from 0 to 1. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sparsewire.errors import InputError
from sparsewire.fields import FieldError, read_fields

VERSION = 1


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model; `sparse` if its gradients are sparse tensors.

    `table` is the class that looks rows up in it, "Embedding" or "EmbeddingBag", where that one
    takes `sparse=True`, and else None.
    """

    name: str
    shape: list[int]
    dtype: str
    sparse: bool
    table: str | None = None


@dataclass(frozen=True)
class ParameterDensity:
    """Densities of the gradient of the parameter with this index, on this rank.

    Tables also have the density of rows, here and in the union of all ranks.
    """

    parameter: int
    element_density: float | None = None
    block_density: float | None = None
    row_density: float | None = None
    union_row_density: float | None = None


@dataclass(frozen=True)
class Span:
    """When a backward pass made the gradient of a table, and put it into its bucket."""

    parameter: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that go together; times count from the beginning of the step's backward pass.

    Densities are this rank's and, of the union, all ranks'; None where they were not looked at.
    """

    bucket: int
    parameters: list[int]
    elements: int
    bytes: int
    dtype: str
    ready_s: float
    communication_begin_s: float
    communication_end_s: float
    element_density: float | None = None
    block_density: float | None = None
    union_block_density: float | None = None
    union_element_density: float | None = None


@dataclass(frozen=True)
class Step:
    """One step, from the beginning of a backward pass to that of the next.

    `backward_s` ends with the backward pass or the last bucket's communication, the later one.
    Optimizers begin behind it, and take `optimizer_s` in all; None where none was seen.
    """

    step: int
    duration_s: float
    backward_s: float
    sampled: bool
    buckets: list[Bucket]
    parameters: list[ParameterDensity]
    tables: list[Span] = field(default_factory=list)
    optimizer_begin_s: float | None = None
    optimizer_s: float | None = None


@dataclass(frozen=True)
class Optimizer:
    """The class of an optimizer, and which parameters it steps, by their indices."""

    name: str
    parameters: list[int]


@dataclass(frozen=True)
class Cost:
    """Seconds that some rows of a table take: a constant, and a time for each row."""

    base_s: float
    row_s: float

    def of(self, rows: float) -> float:
        """Seconds."""
        return self.base_s + rows * self.row_s


@dataclass(frozen=True)
class Rehearsal:
    """Times of a table with `sparse=True`, taken on a scratch table by all ranks at once.

    `coalesce` is to sort rows and add up equal ones, `update` what `optimizer` does to rows.
    """

    parameter: int
    optimizer: str
    coalesce: Cost
    update: Cost


@dataclass(frozen=True)
class Memory:
    """Seconds a byte, all ranks at once: to copy it, to fill it where it is new, to free it."""

    copy_byte_s: float
    fill_byte_s: float
    free_byte_s: float


@dataclass(frozen=True)
class RankProfile:
    """The recording of one rank; `block` is the number of elements of a block.

    Ranks with the same `machine` share its `cores`. `views` says whether gradients lie in the
    buckets, so that nothing is copied out of them.
    """

    rank: int
    world_size: int
    host: str
    local_world_size: int
    backend: str
    torch: str
    block: int
    parameters: list[Parameter]
    steps: list[Step]
    link_bits_per_s: float | None = None
    version: int = VERSION
    machine: str | None = None
    cores: int | None = None
    views: bool = False
    optimizers: list[Optimizer] = field(default_factory=list)
    memory: Memory | None = None
    rehearsals: list[Rehearsal] = field(default_factory=list)


@dataclass(frozen=True)
class Recorded:
    """The profiles of all ranks, in their order."""

    ranks: list[RankProfile]


def path_of(directory: Path | str, rank: int) -> Path:
    """The file of a rank."""
    return Path(directory) / f"rank-{rank}.json"


def save(profile: RankProfile, directory: Path | str) -> Path:
    """Write a rank's file, whole or not at all, and make the directory where it is missing."""
    path = path_of(directory, profile.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".json.{os.getpid()}")
    unfinished.write_text(json.dumps(asdict(profile), allow_nan=False), encoding="utf-8")
    unfinished.replace(path)
    return path


def load(directory: Path | str) -> Recorded:
    """Read the files of all ranks; raises InputError, which names one that is odd or missing."""
    first = _load_rank(directory, 0)
    others = [_load_rank(directory, rank) for rank in range(1, first.world_size)]
    for profile in others:
        if profile.world_size != first.world_size or profile.parameters != first.parameters:
            path = path_of(directory, profile.rank)
            raise InputError(f"{path} is of another run than rank 0's: record all ranks again")
    return Recorded([first, *others])


def _load_rank(directory: Path | str, rank: int) -> RankProfile:
    path = path_of(directory, rank)
    try:
        profile = read_fields(RankProfile, json.loads(path.read_text(encoding="utf-8")))
        _check(profile, rank)
    except OSError as error:
        what = error.strerror
        raise InputError(f"cannot read {path} ({what}): record with `sparsewire profile`") from None
    except (FieldError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a profile: {error}") from None
    return profile


def _check(profile: RankProfile, rank: int) -> None:
    """Raise FieldError where fields do not fit together."""
    if profile.version != VERSION:
        raise FieldError(f"it has version {profile.version}, this reads {VERSION}")
    if profile.rank != rank or not 0 <= rank < profile.world_size:
        raise FieldError(f"it says rank {profile.rank} of {profile.world_size}")
    if any(index not in range(len(profile.parameters)) for index in _indices(profile)):
        raise FieldError("it names a parameter that it does not list")
    if any(bucket.elements < 1 or bucket.bytes < 1 for bucket in _buckets(profile)):
        raise FieldError("it has an empty bucket")


def _buckets(profile: RankProfile) -> Iterator[Bucket]:
    for step in profile.steps:
        yield from step.buckets


def _indices(profile: RankProfile) -> Iterator[int]:
    for step in profile.steps:
        yield from (density.parameter for density in step.parameters)
        yield from (span.parameter for span in step.tables)
    for optimizer in profile.optimizers:
        yield from optimizer.parameters
    yield from (rehearsal.parameter for rehearsal in profile.rehearsals)
    for bucket in _buckets(profile):
        yield from bucket.parameters
