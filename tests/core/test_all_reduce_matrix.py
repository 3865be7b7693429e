"""all_reduce over real connections: transport x ranks x dtype x density x size against the plain
reference, to the last bit, alike on all ranks and in every run."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from rank_order import (
    DTYPES,
    Array,
    bits,
    block_sparse,
    element_sparse,
    reduce_in_rank_order,
)
from sampling import balanced_sample
from support import environment_of, run_ranks

import sparsewire

# Around the smallest and the largest chunk, and one of several chunks.
SIZES = [0, 1, 8191, 8192, 8193, 65535, 65536, 65537, 300_001]
SAMPLE = 60
TRANSPORTS = ["colocated", "colocated-3-lanes", "dedicated", "datagrams"]


class Fill(NamedTuple):
    """How a tensor is filled: whole blocks, or elements anywhere."""

    make: Callable[[int, int, str, float], Array]
    density: float


def fills(world_size: int) -> list[Fill]:
    blocks = sorted({0.0, 1 / world_size, 0.1, 0.5, 1.0})
    return [Fill(block_sparse, density) for density in blocks] + [
        Fill(element_sparse, density) for density in (0.001, 0.1, 0.4)
    ]


def combinations(
    world_size: int, dtypes: list[str], ops: list[str], sampled: bool
) -> list[tuple[Any, ...]]:
    axes = [dtypes, fills(world_size), SIZES, ops]
    drawn = balanced_sample(world_size, axes, SAMPLE)
    return drawn if sampled else list(itertools.product(*axes))


def reduce_cases(dtypes: list[str], ops: list[str], sampled: bool) -> str:
    """Reduce every case; rank 0 compares with the reference. Returns a digest of all results."""
    digest = hashlib.sha256()
    with sparsewire.init() as comm:
        for case in combinations(comm.world_size, dtypes, ops, sampled):
            digest.update(bits(checked(comm, *case)))
    return digest.hexdigest()


def checked(comm: sparsewire.Communicator, dtype: str, fill: Fill, size: int, op: str) -> Array:
    def part(rank: int) -> Array:
        return fill.make(rank, size, dtype, fill.density)

    x = part(comm.rank)
    comm.all_reduce(x, op=op)
    if comm.rank == 0:
        expected = reduce_in_rank_order([part(rank) for rank in range(comm.world_size)], op)
        same = bits(x) == bits(expected)
        assert same, f"{op} of {size} {dtype}, {fill.make.__name__} at {fill.density}"
    return x


EXTENT = pytest.mark.parametrize(
    "sampled", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["sample", "all"]
)


@pytest.mark.timeout(240)
@EXTENT
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_sums_equal_the_reference(world_size: int, transport: str, sampled: bool) -> None:
    with environment_of(transport) as environment:
        digests = run_ranks(
            world_size,
            reduce_cases,
            list(DTYPES),
            ["sum"],
            sampled,
            environment=environment,
            deadline_s=200,
        )
    assert len(set(digests)) == 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("world_size", [2, 4])
def test_sums_equal_the_reference_where_datagrams_get_lost(world_size: int) -> None:
    with environment_of("datagrams-lossy") as environment:
        digests = run_ranks(
            world_size,
            reduce_cases,
            list(DTYPES),
            ["sum"],
            True,
            environment=environment,
            deadline_s=200,
        )
    assert len(set(digests)) == 1


@pytest.mark.timeout(240)
@EXTENT
@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_other_operations_equal_the_reference(world_size: int, sampled: bool) -> None:
    floats = [dtype for dtype in DTYPES if not dtype.startswith("int")]
    for dtypes, ops in ((floats, ["avg"]), (list(DTYPES), ["min", "max", "product"])):
        digests = run_ranks(world_size, reduce_cases, dtypes, ops, sampled, deadline_s=200)
        assert len(set(digests)) == 1


@pytest.mark.timeout(240)
@EXTENT
def test_two_runs_and_all_transports_give_the_same_bits(sampled: bool) -> None:
    digests = set()
    for transport in [TRANSPORTS[0], *TRANSPORTS]:
        with environment_of(transport) as environment:
            dtypes = ["float32", "bfloat16"]
            digests |= set(
                run_ranks(3, reduce_cases, dtypes, ["sum"], sampled, environment=environment)
            )
    assert len(digests) == 1
