"""Sums by datagrams to aggregators: what they are worth in fixed point, what is told where they do
not pass, and that counters, failures and jobs are those of any aggregator."""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from rank_order import DTYPES, Array, block_sparse, reduce_in_rank_order
from support import LOSSY, run_ranks, serving
from test_aggregator import wait_until_empty

import sparsewire

FIXED = ["float32", "float16", "bfloat16"]
SIZES = [1, 255, 256, 257, 70_000]


@contextmanager
def datagrams(arithmetic: str = "exact", **more: str) -> Iterator[dict[str, str]]:
    """The variables of ranks that send datagrams to an aggregator."""
    with serving(transport="udp", disturb=more.get("SPARSEWIRE_DISTURB", "")) as server:
        yield {
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_TRANSPORT": "udp",
            "SPARSEWIRE_ARITHMETIC": arithmetic,
            **more,
        }


def inputs(rank: int, size: int, dtype: str, density: float) -> Array:
    """Blocks of very different magnitudes."""
    x = block_sparse(rank, size, dtype, density).astype(np.float64)
    scale = 2.0 ** np.random.default_rng([rank, size]).integers(-20, 8, -(-size // 256))
    return (x * np.repeat(scale, 256)[:size]).astype(DTYPES[dtype])


def spoilt(rank: int, size: int, dtype: str, share: float) -> Array:
    """The same, of which some elements are infinite or NaN."""
    x = inputs(rank, size, dtype, 0.5)
    draw = np.random.default_rng([size, rank])
    at = draw.random(size) < share
    x[at] = draw.choice([math.inf, -math.inf, math.nan], size)[at]
    return x


def bound(parts: list[Array]) -> Array:
    """Of the error of each element: n 2^(E - bits), E of the largest magnitude of its block."""
    n, size = len(parts), parts[0].size
    bits = math.floor(math.log2((2**31 - 1) / n))
    finite = [np.where(np.isfinite(part), part, 0).astype(np.float64) for part in parts]
    blocks = np.maximum.reduceat(np.max(np.abs(finite), axis=0), np.arange(0, size, 256))
    exponents = np.floor(np.log2(np.maximum(blocks, 2.0**-126)))
    return np.repeat(n * 2.0 ** (exponents - bits), 256)[:size]


def check_sum(x: Array, parts: list[Array], dtype: str, op: str) -> None:
    """What is not finite is as of floats, and all else keeps its bound."""
    with np.errstate(invalid="ignore"):
        exact = np.sum([part.astype(np.float64) for part in parts], axis=0)
    exact = exact / len(parts) if op == "avg" else exact
    finite = np.isfinite(exact)
    assert np.array_equal(x[~finite].astype(np.float64), exact[~finite], equal_nan=True)
    rounding = np.abs(exact) * 2.0 ** -{"float32": 24, "float16": 11}.get(dtype, 8)
    # Beside the bound, one rounding to the dtype, subnormal or not.
    allowed = bound(parts) + rounding + (2.0**-24 if dtype == "float16" else 0)
    error = np.abs(x[finite].astype(np.float64) - exact[finite])
    assert (error <= allowed[finite]).all(), f"{dtype} {x.size}: {error.max()}"


def reduce_all(make: Callable[..., Array], densities: list[float], op: str) -> list[bytes]:
    results = []
    with sparsewire.init() as comm:
        for dtype in FIXED:
            for density in densities:
                for size in SIZES:
                    parts = [make(r, size, dtype, density) for r in range(comm.world_size)]
                    x = parts[comm.rank].copy()
                    comm.all_reduce(x, op=op)
                    check_sum(x, parts, dtype, op)
                    results.append(x.tobytes())
        assert comm.stats()["datagrams_sent"] > 0
    return results


@pytest.mark.parametrize("disturb", ["", LOSSY], ids=["clean", "lossy"])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_fixed_point_keeps_its_bound_and_is_alike_on_all_ranks(op: str, disturb: str) -> None:
    with datagrams("fixed", SPARSEWIRE_DISTURB=disturb) as environment:
        results = run_ranks(3, reduce_all, inputs, [1.0, 0.2], op, environment=environment)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("disturb", ["", LOSSY], ids=["clean", "lossy"])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_what_is_not_finite_stays_so_on_all_ranks_in_fixed_point(op: str, disturb: str) -> None:
    with datagrams("fixed", SPARSEWIRE_DISTURB=disturb) as environment:
        results = run_ranks(3, reduce_all, spoilt, [1.0, 0.3, 0.001], op, environment=environment)
    assert results[0] == results[1] == results[2]


def reduce_integers() -> list[int]:
    with sparsewire.init() as comm:
        x = np.full(1000, 2**31 - 1 - comm.rank, np.int32)
        comm.all_reduce(x)
        return x[:2].tolist()


def test_integers_wrap_in_fixed_point_too() -> None:
    with datagrams("fixed") as environment:
        expected = int(np.array([2**32 - 3], np.uint32).view(np.int32)[0])
        assert run_ranks(2, reduce_integers, environment=environment) == [[expected] * 2] * 2


def reduce_not_finite() -> list[bool]:
    with sparsewire.init() as comm:
        x = np.ones(100_000, np.float32)
        x[comm.rank] = [math.inf, math.nan][comm.rank]
        comm.all_reduce(x)
        return [math.isinf(x[0]), math.isnan(x[1]), x[2] == 2.0]


def test_what_is_not_finite_is_added_exactly() -> None:
    with datagrams() as environment:
        assert run_ranks(2, reduce_not_finite, environment=environment) == [[True] * 3] * 2


def reduce_many(count: int) -> dict[str, int]:
    """Operations of all kinds and sizes in flight at once."""
    with sparsewire.init() as comm:
        parts = [
            [block_sparse(rank, 100 + 7919 * k, "float32", 0.3, seed=k) for k in range(count)]
            for rank in range(comm.world_size)
        ]
        works = []
        for k, part in enumerate(parts[comm.rank]):
            works.append(comm.all_reduce(part, op="max" if k % 5 == 4 else "sum", async_op=True))
        for work in works:
            work.wait()
        for k, part in enumerate(parts[comm.rank]):
            originals = [
                block_sparse(rank, 100 + 7919 * k, "float32", 0.3, seed=k)
                for rank in range(comm.world_size)
            ]
            expected = reduce_in_rank_order(originals, "max" if k % 5 == 4 else "sum")
            assert np.array_equal(part, expected), k
        return comm.stats()


def test_many_operations_are_in_flight_at_once() -> None:
    with datagrams(SPARSEWIRE_DISTURB=LOSSY) as environment:
        for stats in run_ranks(4, reduce_many, 20, environment=environment, deadline_s=60):
            assert stats["operations_failed"] == 0
            assert stats["datagrams_sent"] >= stats["retransmissions"] > 0
            assert stats["rtt_us"] > 0
            assert stats["window"] >= 1


@pytest.mark.parametrize("flows", ["2", "4", "8"])
def test_any_number_of_flows_carries_sums(flows: str) -> None:
    with datagrams(SPARSEWIRE_DISTURB=LOSSY, SPARSEWIRE_FLOWS=flows) as environment:
        for stats in run_ranks(3, reduce_many, 10, environment=environment, deadline_s=60):
            assert stats["operations_failed"] == 0
            assert stats["datagrams_sent"] > 0


def take_other_flows() -> str:
    os.environ["SPARSEWIRE_FLOWS"] = str(1 + int(os.environ["RANK"]))
    with pytest.raises(sparsewire.MismatchError) as refused:
        sparsewire.init(timeout=20)
    return str(refused.value)


def test_ranks_that_disagree_on_their_flows_are_told() -> None:
    with datagrams() as environment:
        for text in run_ranks(2, take_other_flows, environment=environment):
            assert "SPARSEWIRE_FLOWS" in text


def disagree() -> str:
    with sparsewire.init() as comm:
        with pytest.raises(sparsewire.MismatchError) as refused:
            comm.all_reduce(np.ones(1000 + comm.rank, np.float32))
        x = np.ones(10, np.float32)
        comm.all_reduce(x)
        assert x.tolist() == [2.0] * 10
        return str(refused.value)


def test_ranks_that_disagree_are_told_before_a_datagram_is_sent() -> None:
    with datagrams() as environment:
        for text in run_ranks(2, disagree, environment=environment):
            assert "1001" in text


def lose_a_rank() -> sparsewire.PeerLost:
    with sparsewire.init(timeout=20) as comm:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(300_000, np.float32))
        except sparsewire.PeerLost as lost:
            return lost


@pytest.mark.chaos
def test_killed_rank_is_named_and_the_aggregator_serves_the_next_job() -> None:
    with serving(transport="udp") as server:
        environment = {
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_TRANSPORT": "udp",
        }
        results = run_ranks(3, lose_a_rank, environment=environment, dying=[1])
        assert {results[0].rank, results[2].rank} == {1}
        wait_until_empty(server)
        assert run_ranks(2, reduce_many, 3, environment=environment)
        wait_until_empty(server)
        assert server.stats()["memory_reserved"] == 0


def fail_to_start() -> str:
    with pytest.raises(sparsewire.Error) as refused:
        sparsewire.init(timeout=20)
    return str(refused.value)


def test_aggregator_without_datagrams_is_named_with_what_to_do() -> None:
    with serving() as server:
        environment = {
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_TRANSPORT": "udp",
        }
        for text in run_ranks(2, fail_to_start, environment=environment):
            assert "--transport udp" in text
            assert "firewall" in text


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"SPARSEWIRE_TRANSPORT": "carrier pigeon"}, "must be tcp, udp or xdp"),
        ({"SPARSEWIRE_TRANSPORT": "udp"}, "needs aggregators"),
        ({"SPARSEWIRE_TRANSPORT": "udp", "SPARSEWIRE_LANES": "2"}, "one lane"),
        ({"SPARSEWIRE_TRANSPORT": "xdp", "SPARSEWIRE_ARITHMETIC": "exact"}, "fixed point"),
        ({"SPARSEWIRE_ARITHMETIC": "roman"}, "exact or fixed"),
        ({"SPARSEWIRE_DATAGRAM": "100"}, "576 to 8972"),
        ({"SPARSEWIRE_FLOWS": "0"}, "1 to 8"),
        ({"SPARSEWIRE_FLOWS": "9"}, "1 to 8"),
    ],
)
def test_wrong_settings_are_named(environment: dict[str, str], text: str) -> None:
    from sparsewire.options import resolve

    if "SPARSEWIRE_LANES" in environment or "SPARSEWIRE_ARITHMETIC" in environment:
        environment = {"SPARSEWIRE_AGGREGATORS": "127.0.0.1:1", **environment}
    with pytest.raises(ValueError, match=text):
        resolve(environment, rank=0, world_size=2)


def test_garbage_is_counted_and_changes_nothing() -> None:
    with serving(transport="udp") as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for size in (0, 1, 39, 40, 1072, 9000):
                stranger.sendto(os.urandom(size), tuple(server.address))
        environment = {
            "SPARSEWIRE_AGGREGATORS": str(server.address),
            "SPARSEWIRE_TRANSPORT": "udp",
        }
        run_ranks(2, reduce_many, 2, environment=environment)
        assert server.stats()["datagrams_strange"] >= 5
