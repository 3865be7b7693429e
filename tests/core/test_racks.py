"""Racks: two levels of aggregators. Sums by datagrams are those of racks, and all else is as with
one aggregator: what goes by connections, errors, ranks and aggregators that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np
import pytest
from rank_order import block_sparse, reduce_in_rank_order
from support import LOSSY, run_ranks, serving
from test_aggregator import wait_until_empty

import sparsewire
from sparsewire.meeting.aggregators.aggregator import AggregatorServer
from sparsewire.meeting.contact.racks import RackPlace, check_racks, rack_place
from sparsewire.options import Address, resolve

RACKS = ["left", "left", "right", "right"]


def enter_rack(leaves: dict[str, str], racks: list[str] | None = None) -> None:
    """Tell this rank of its rack, before it starts."""
    rack = (racks or RACKS)[int(os.environ["RANK"])]
    os.environ["SPARSEWIRE_RACK"] = rack
    os.environ["SPARSEWIRE_AGGREGATORS"] = leaves[rack]


@contextmanager
def two_racks(disturb: str = "") -> Iterator[tuple[list[AggregatorServer], dict[str, str]]]:
    """A root and two aggregators below it; and the addresses of these."""
    settings = {"transport": "udp", "disturb": disturb}
    with serving(**settings) as root:
        above = {**settings, "parent": root.address}
        with serving(**above) as left, serving(**above) as right:
            leaves = {"left": str(left.address), "right": str(right.address)}
            yield [root, left, right], leaves


def variables(arithmetic: str = "exact", disturb: str = "") -> dict[str, str]:
    return {
        "SPARSEWIRE_TRANSPORT": "udp",
        "SPARSEWIRE_ARITHMETIC": arithmetic,
        "SPARSEWIRE_DISTURB": disturb,
    }


# --- Sums ---


def expected_sum(parts: list[np.ndarray], racks: list[str], op: str) -> np.ndarray:
    """Of each rack's ranks in order, then of the racks in order; avg is the root's to make."""
    inner = "sum" if op == "avg" else op
    sums = []
    for name in dict.fromkeys(racks):
        own = [part for part, rack in zip(parts, racks, strict=True) if rack == name]
        sums.append(reduce_in_rank_order(own, inner))
    total = reduce_in_rank_order(sums, inner)
    return (total / len(parts)).astype(total.dtype) if op == "avg" else total


def reduce_all(leaves: dict[str, str], racks: list[str]) -> list[bytes]:
    """Dense sums, and what connections carry."""
    enter_rack(leaves, racks)
    results = []
    with sparsewire.init(timeout=40) as comm:
        for op in ("sum", "avg", "max"):
            for size in (1, 300, 70_000):
                parts = [block_sparse(r, size, "float32", 0.5) for r in range(comm.world_size)]
                x = parts[comm.rank].copy()
                comm.all_reduce(x, op=op)
                if os.environ["SPARSEWIRE_ARITHMETIC"] == "exact":
                    assert np.array_equal(x, expected_sum(parts, racks, op)), (op, size)
                else:
                    exact = reduce_in_rank_order([p.astype(np.float64) for p in parts], op)
                    assert np.allclose(x, exact, rtol=1e-6, atol=1e-6), (op, size)
                results.append(x.tobytes())
        vector = sparsewire.SparseVector(
            np.array([comm.rank, 50_000]), np.array([1.0, 2.0], np.float32), 100_000
        )
        total = comm.all_reduce(vector)
        assert total.to_dense()[50_000] == 2.0 * comm.world_size
        results.append(total.to_dense().tobytes())
        assert comm.stats()["datagrams_sent"] > 0
    return results


@pytest.mark.parametrize(
    ("disturb", "flows"), [("", "1"), (LOSSY, "1"), (LOSSY, "4")], ids=["clean", "lossy", "flows"]
)
@pytest.mark.parametrize("arithmetic", ["exact", "fixed"])
def test_sums_are_those_of_the_racks_and_alike_on_all_ranks(
    arithmetic: str, disturb: str, flows: str
) -> None:
    with two_racks(disturb) as (servers, leaves):
        environment = {**variables(arithmetic, disturb), "SPARSEWIRE_FLOWS": flows}
        results = run_ranks(4, reduce_all, leaves, RACKS, environment=environment, deadline_s=60)
        assert all(result == results[0] for result in results)
        assert all(server.stats()["jobs_served"] == 1 for server in servers)
        assert servers[1].stats()["datagrams_sent_up"] > 0
        for server in servers:
            wait_until_empty(server)
            assert server.stats()["memory_reserved"] == 0


def test_racks_may_have_any_ranks_and_take_one_job_after_another() -> None:
    racks = ["left", "right", "left", "left", "right"]
    with two_racks() as (servers, leaves):
        for _ in range(2):
            results = run_ranks(5, reduce_all, leaves, racks, environment=variables())
            assert all(result == results[0] for result in results)
            for server in servers:
                wait_until_empty(server)
        assert servers[2].stats()["jobs_served"] == 2


def reduce_fixed() -> bytes:
    with sparsewire.init(timeout=40) as comm:
        x = block_sparse(comm.rank, 50_000, "float32", 0.5)
        comm.all_reduce(x)
        return x.tobytes()


def reduce_fixed_in_rack(leaves: dict[str, str]) -> bytes:
    enter_rack(leaves)
    return reduce_fixed()


def test_fixed_point_has_the_bits_of_one_aggregator() -> None:
    with serving(transport="udp") as server:
        environment = {**variables("fixed"), "SPARSEWIRE_AGGREGATORS": str(server.address)}
        flat = run_ranks(4, reduce_fixed, environment=environment)
    with two_racks() as (_, leaves):
        racks = run_ranks(4, reduce_fixed_in_rack, leaves, environment=variables("fixed"))
    assert racks == flat


# --- Errors ---


def disagree(leaves: dict[str, str]) -> str:
    enter_rack(leaves)
    with sparsewire.init(timeout=40) as comm:
        with pytest.raises(sparsewire.MismatchError) as refused:
            comm.all_reduce(np.ones(1000 + comm.rank // 3, np.float32))
        x = np.ones(10, np.float32)
        comm.all_reduce(x)
        assert x.tolist() == [4.0] * 10
        return str(refused.value)


def test_ranks_of_several_racks_that_disagree_are_told() -> None:
    with two_racks() as (_, leaves):
        for text in run_ranks(4, disagree, leaves, environment=variables()):
            assert "1001" in text


def lose_a_rank(leaves: dict[str, str], dying: int) -> sparsewire.PeerLost:
    enter_rack(leaves)
    with sparsewire.init(timeout=20) as comm:
        comm.barrier()
        if comm.rank == dying:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.all_reduce(np.ones(300_000, np.float32))
        except sparsewire.PeerLost as lost:
            return lost


@pytest.mark.chaos
def test_killed_rank_is_named_in_all_racks_and_the_next_job_is_served() -> None:
    with two_racks() as (servers, leaves):
        results = run_ranks(4, lose_a_rank, leaves, 1, environment=variables(), dying=[1])
        assert {results[rank].rank for rank in (0, 2, 3)} == {1}
        for server in servers:
            wait_until_empty(server)
        assert run_ranks(4, reduce_all, leaves, RACKS, environment=variables())


def lose_an_aggregator(leaves: dict[str, str], pid: int) -> str:
    enter_rack(leaves)
    with sparsewire.init(timeout=20) as comm:
        try:
            comm.barrier()
            if comm.rank == 0:
                os.kill(pid, signal.SIGKILL)
            while True:
                comm.all_reduce(np.ones(300_000, np.float32))
        except sparsewire.PeerLost as lost:
            return str(lost)


@contextmanager
def process_of(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """An aggregator in a process, and its address."""
    command = [
        sys.executable,
        "-m",
        "sparsewire",
        "aggregator",
    ]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


@pytest.mark.chaos
def test_killed_aggregator_of_a_rack_ends_the_job_everywhere() -> None:
    with (
        serving(transport="udp") as root,
        serving(transport="udp", parent=root.address) as left,
        process_of("--transport", "udp", "--parent", str(root.address)) as (process, right),
    ):
        leaves = {"left": str(left.address), "right": right}
        run_ranks(4, lose_an_aggregator, leaves, process.pid, environment=variables())
        for server in (root, left):
            wait_until_empty(server)


# --- Starting ---


@contextmanager
def serving_late(address: Address, seconds: float) -> Iterator[None]:
    """A root that starts so much later."""
    stop = threading.Event()

    def serve() -> None:
        stop.wait(seconds)
        with closing(AggregatorServer(address, transport="udp")) as root:
            root.serve(stop.is_set)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_root_may_start_after_the_racks_and_the_ranks() -> None:
    with serving(transport="udp") as model:
        address = model.address  # Free again.
    below = {"transport": "udp", "parent": address}
    with serving_late(address, 4), serving(**below) as left, serving(**below) as right:
        leaves = {"left": str(left.address), "right": str(right.address)}
        assert run_ranks(4, reduce_fixed_in_rack, leaves, environment=variables("fixed"))


def fail_to_start(leaves: dict[str, str], racks: list[str]) -> str:
    enter_rack(leaves, racks)
    with pytest.raises(sparsewire.Error) as refused:
        sparsewire.init(timeout=20)
    return f"{type(refused.value).__name__}: {refused.value}"


def test_aggregator_without_a_parent_is_named_with_what_to_do() -> None:
    with serving(transport="udp") as one, serving(transport="udp") as other:
        leaves = {"left": str(one.address), "right": str(other.address)}
        for text in run_ranks(4, fail_to_start, leaves, RACKS, environment=variables()):
            assert "Timeout" in text
            assert "--parent" in text


def test_racks_that_share_an_aggregator_are_named() -> None:
    with serving(transport="udp") as one:
        leaves = {"left": str(one.address), "right": str(one.address)}
        for text in run_ranks(2, fail_to_start, leaves, ["left", "right"], environment=variables()):
            assert text.startswith("MismatchError")
            assert "'left' and 'right'" in text


def test_ranks_without_a_rack_are_named() -> None:
    with serving(transport="udp") as one:
        leaves = {"left": str(one.address), "": str(one.address)}
        for text in run_ranks(2, fail_to_start, leaves, ["left", ""], environment=variables()):
            assert text.startswith("MismatchError")
            assert "SPARSEWIRE_RACK" in text


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"SPARSEWIRE_AGGREGATORS": "127.0.0.1:1"}, "SPARSEWIRE_TRANSPORT=udp"),
        (
            {
                "SPARSEWIRE_AGGREGATORS": "127.0.0.1:1,127.0.0.1:2",
                "SPARSEWIRE_TRANSPORT": "udp",
            },
            "takes one aggregator",
        ),
    ],
)
def test_wrong_settings_are_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        resolve({"SPARSEWIRE_RACK": "left", **environment}, rank=0, world_size=2)


def test_places_in_racks() -> None:
    names = ["b", "a", "b", "c", "a", "a"]
    assert rack_place(names, 0) == RackPlace(worker=0, workers=2, rack=0, racks=3)
    assert rack_place(names, 5) == RackPlace(worker=2, workers=3, rack=1, racks=3)
    assert rack_place(["", "", ""], 2) == RackPlace(worker=2, workers=3, rack=0, racks=1)
    check_racks(["", ""], ["", ""])
    with pytest.raises(sparsewire.MismatchError, match="alike on all ranks of a rack"):
        check_racks(["a", "a"], ["h:1", "h:2"])


def test_parent_needs_datagrams() -> None:
    command = [
        sys.executable,
        "-m",
        "sparsewire",
        "aggregator",
    ]
    ended = subprocess.run(
        [*command, "--parent", "127.0.0.1:1"], capture_output=True, text=True, timeout=30
    )
    assert ended.returncode != 0
    assert "--transport udp" in ended.stderr
