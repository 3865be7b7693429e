"""precision=: sums of values sent with few bits are alike on all ranks and in every run, as near to
the exact sum as documented, unbiased, and cheaper to send."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from rank_order import Array, bits
from support import environment_of, run_ranks

import sparsewire
from sparsewire import SparseVector

PRECISIONS: list[Any] = [
    "bfloat16", "float16", "int8", "int4", "int2",
    ("int4", None), (None, "int8"), ("int2", "bfloat16"),
]  # fmt: skip
OWNER_ALGORITHMS = ["dense", "stream", "ssar_split_allgather", "dsar_split_allgather"]
ALGORITHMS = [*OWNER_ALGORITHMS, "ssar_recursive_double", "ring", "allgather"]
SHAPES = [(0, 1.0), (1, 1.0), (3000, 0.5), (140_000, 0.02)]
# The largest error of one value, as a share of what it is measured by.
STEP = {None: 0.0, "bfloat16": 2**-8, "float16": 2**-11, "int8": 1 / 127, "int4": 1 / 7, "int2": 1}
SUBNORMAL = 2**-24  # Between the smallest float16 numbers.
HALVES = {"bfloat16", "float16"}


@cache
def part(rank: int, length: int, density: float) -> Array:
    random = np.random.default_rng([rank, length])
    values = random.standard_normal(length, np.float32) * (random.random(length) < density)
    return values.astype(np.float32)


@cache
def exact_sum(ranks: int, length: int, density: float) -> Array:
    return sum(part(rank, length, density).astype(np.float64) for rank in range(ranks))


def send(
    comm: sparsewire.Communicator, x: Array, algorithm: str, precision: Any, **options: Any
) -> Array:
    """The sum of a vector that is passed densely or sparsely, as a dense array."""
    options = {"precision": precision, "timeout": 30, **options}
    if algorithm == "dense":
        return comm.all_reduce(x.copy(), **options)
    vector = SparseVector.from_dense(x)
    return comm.all_reduce(vector, algorithm=algorithm, result="dense", **options)


def phases(precision: Any) -> tuple[Any, Any]:
    return precision if isinstance(precision, tuple) else (precision, precision)


def error_bound(parts: list[Array], algorithm: str, precision: Any) -> Array:
    """Each time that values are sent an error is added: at most a step of the largest magnitude in
    a span, or of the value itself where it is rounded to a half type."""
    first, second = phases(precision)
    ranks = len(parts)
    times = {"ring": ranks - 1, "ssar_recursive_double": math.ceil(math.log2(ranks))}
    has_results = algorithm not in ("ssar_recursive_double", "allgather")
    steps = [STEP[first]] * times.get(algorithm, 1) + [STEP[second]] * has_results
    by_value = {first, second} <= HALVES
    magnitudes = [np.abs(x.astype(np.float64)) for x in parts]
    total = sum(magnitudes) if by_value else sum(x.max(initial=0) for x in magnitudes)
    return total * (math.prod(1 + step for step in steps) - 1 + 1e-6) + ranks * SUBNORMAL


def check(got: Array, ranks: int, density: float, algorithm: str, precision: Any) -> None:
    exact = exact_sum(ranks, len(got), density)
    parts = [part(rank, len(got), density) for rank in range(ranks)]
    is_near = np.abs(got - exact) <= error_bound(parts, algorithm, precision)
    assert is_near.all(), (algorithm, precision, len(got))
    assert not got[exact == 0].any()


def reduce_all(algorithms: list[str], precisions: list[Any], seed: int) -> str:
    digest = hashlib.sha256()
    with sparsewire.init() as comm:
        for algorithm in algorithms:
            for precision in precisions:
                for length, density in SHAPES:
                    x = part(comm.rank, length, density)
                    got = send(comm, x, algorithm, precision, seed=seed)
                    digest.update(bits(got))
                    if comm.rank == 0:
                        check(got, comm.world_size, density, algorithm, precision)
    return digest.hexdigest()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_errors_are_bounded_and_alike_on_all_ranks(world_size: int) -> None:
    environment = {"SPARSEWIRE_LANES": "2"}
    digests = run_ranks(world_size, reduce_all, ALGORITHMS, PRECISIONS, 0, environment=environment)
    assert len(set(digests)) == 1


def test_dedicated_aggregators() -> None:
    with environment_of("dedicated") as environment:
        digests = run_ranks(3, reduce_all, OWNER_ALGORITHMS, PRECISIONS, 0, environment=environment)
    assert len(set(digests)) == 1


def test_the_seed_alone_makes_the_difference() -> None:
    """Not what was measured of the link, which differs from run to run."""
    algorithms = ["dense", "stream", "ssar_recursive_double"]
    slow, fast = ({"SPARSEWIRE_LINK": f"5e-5,1e-9,{merge}"} for merge in (1e-6, 1e-10))
    first, again, other = (
        set(run_ranks(3, reduce_all, algorithms, ["int4"], seed, environment=link))
        for seed, link in [(0, slow), (0, fast), (1, fast)]
    )
    assert len(first) == len(again) == len(other) == 1
    assert again != other
    assert first == again


def call_the_others(precision: Any) -> str:
    """A digest of what all ranks must share."""
    digest = hashlib.sha256()
    with sparsewire.init() as comm:
        parts = [part(rank, 9001, 0.3) for rank in range(comm.world_size)]
        x = SparseVector.from_dense(parts[comm.rank])
        ranks, step = comm.world_size, STEP[precision]
        for vector in comm.all_gather(x, precision=precision):
            digest.update(bits(vector.to_dense()))
        got = comm.broadcast(x, root=1, precision=precision).to_dense()
        digest.update(bits(got))
        assert (np.abs(got - parts[1]) <= np.abs(parts[1]).max() * step).all()
        exact = exact_sum(ranks, 9001, 0.3)
        bound = error_bound(parts, "stream", precision)
        total = comm.reduce(x, root=1, precision=precision)
        assert (total is None) == (comm.rank != 1)
        if total is not None:
            assert (np.abs(total.to_dense() - exact) <= bound).all()
        begin, end = (place * 9001 // ranks for place in (comm.rank, comm.rank + 1))
        scattered = comm.reduce_scatter(x, precision=precision).to_dense()
        assert (
            np.abs(scattered - exact[begin:end]) <= np.broadcast_to(bound, 9001)[begin:end]
        ).all()
    return digest.hexdigest()


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8", "int4", "int2"])
def test_the_other_collectives(precision: str) -> None:
    assert len(set(run_ranks(3, call_the_others, precision))) == 1


def reduce_regions(algorithm: str) -> None:
    """Spans have their own scales: large numbers do no harm to small ones far away."""
    with sparsewire.init() as comm:
        x = part(comm.rank, 200_000, 1.0).copy()
        exact = exact_sum(comm.world_size, 200_000, 1.0)
        x[:50_000] *= 1e6
        got = send(comm, x, algorithm, "int8")
        assert np.abs(got - exact)[150_000:].max() < 0.5
        assert np.abs(got - exact)[:50_000].max() > 1000


@pytest.mark.parametrize("algorithm", ["dense", "stream", "allgather"])
def test_scales_are_local(algorithm: str) -> None:
    run_ranks(2, reduce_regions, algorithm)


def collect_errors(algorithm: str, precision: str) -> Array:
    """Errors of every element with 200 seeds: shape (200, elements)."""
    with sparsewire.init() as comm:
        x = part(comm.rank, 2000, 1.0)
        sums = [send(comm, x, algorithm, precision, seed=seed) for seed in range(200)]
        return np.array(sums) - exact_sum(comm.world_size, 2000, 1.0)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("algorithm", "precision"),
    [
        ("dense", "int8"),
        ("stream", "int8"),
        ("stream", "int4"),
        ("stream", "int2"),
        ("ssar_recursive_double", "int4"),
        ("ring", "int2"),
        ("allgather", "int4"),
    ],
)
def test_the_mean_is_the_exact_sum(algorithm: str, precision: str) -> None:
    errors, *_ = run_ranks(3, collect_errors, algorithm, precision)
    seeds, elements = errors.shape
    deviations = errors.std(axis=0, ddof=1)
    assert (deviations > 0).all()
    # Of 2000 sample means of 200 each, one beyond 5 deviations has a probability below 1 %.
    assert (np.abs(errors.mean(axis=0)) <= 5 * deviations / math.sqrt(seeds)).all()
    towards_zero = errors * np.sign(exact_sum(3, 2000, 1.0))
    for error in (errors, towards_zero):
        assert abs(error.mean()) <= 5 * errors.std() / math.sqrt(seeds * elements)


def repeat(count: int) -> list[bytes]:
    with sparsewire.init() as comm:
        x = part(comm.rank, 1000, 1.0)
        return [bits(send(comm, x, "stream", "int4", seed=5)) for _ in range(count)]


def test_errors_of_two_calls_are_independent() -> None:
    assert len(set(run_ranks(2, repeat, 10)[0])) == 10


def send_exactly(precision: Any) -> bytes:
    with sparsewire.init() as comm:
        return bits(send(comm, part(comm.rank, 10_000, 0.3), "stream", precision))


def test_float32_is_exact() -> None:
    wanted = run_ranks(2, send_exactly, None)
    assert run_ranks(2, send_exactly, "float32") == wanted
    assert run_ranks(2, send_exactly, ("float32", None)) == wanted


def count_bytes(algorithm: str, density: float, precisions: list[Any]) -> list[int]:
    """Bytes that this rank sends with each precision."""
    sent = []
    with sparsewire.init() as comm:
        x = part(comm.rank, 600_000, density)
        for precision in precisions:
            comm.barrier()
            comm.engine.start_counting()
            send(comm, x, algorithm, precision)
            comm.barrier()  # What the others still need goes ahead of it.
            sent.append(comm.stats()["bytes_sent"])
    return sent


SIZES = {None: 32, "bfloat16": 16, "float16": 16, "int8": 8, "int4": 4, "int2": 2}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bytes_shrink_with_the_bits(algorithm: str) -> None:
    for raw, *others in run_ranks(2, count_bytes, algorithm, 1.0, [*SIZES]):
        for size, sent in zip([*SIZES.values()][1:], others, strict=True):
            assert sent / raw == pytest.approx(size / 32, rel=0.05), size


def test_a_pair_shrinks_its_own_phase() -> None:
    precisions = [None, ("int8", None), (None, "int8"), "int8"]
    results = np.array(run_ranks(2, count_bytes, "dense", 1.0, precisions)).sum(axis=0)
    assert results / results[0] == pytest.approx([1, 5 / 8, 5 / 8, 2 / 8], rel=0.05)


@pytest.mark.parametrize("algorithm", ["stream", "ssar_recursive_double"])
def test_bytes_of_sparse_values_shrink_and_positions_stay(algorithm: str) -> None:
    for raw, *others in run_ranks(2, count_bytes, algorithm, 0.05, [*SIZES]):
        values = [(raw - sent) / (32 - size) for size, sent in
                  zip([*SIZES.values()][1:], others, strict=True)]  # fmt: skip
        # All come to the same number of values.
        assert values == pytest.approx([values[0]] * len(values), rel=0.05)
