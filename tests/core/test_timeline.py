"""SPARSEWIRE_TIMELINE: files that trace viewers open, whatever becomes of the process."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meeting import meet
from support import run_ranks, serving

import sparsewire
from sparsewire.timeline import timeline_path

Event = dict[str, Any]
STAGES = {"scan", "send", "receive"}


def work(late: int) -> None:
    """Dense and sparse sums; rank `late` is late for the last."""
    with sparsewire.init() as comm:
        x = np.zeros(300_000, np.float32)
        x[:1000] = 1
        for _ in range(5):
            comm.all_reduce(x)
        indices = np.arange(0, 90_000, 3)
        vector = sparsewire.SparseVector(indices, np.ones(len(indices), np.float32), 100_000)
        comm.all_reduce(vector, algorithm="ssar_split_allgather")
        meet("before the last")
        if comm.rank == late:
            time.sleep(0.2)
        comm.all_reduce(x)


def noted(folder: Path, *arguments: Any, ranks: int = 2, **settings: Any) -> list[list[Event]]:
    environment = {"SPARSEWIRE_TIMELINE": str(folder / "run.json"), **settings}
    run_ranks(ranks, work, *arguments, environment=environment)
    return [json.loads((folder / f"run.{rank}.json").read_text()) for rank in range(ranks)]


def named(events: list[Event], name: str, edge: str = "b") -> list[Event]:
    return [event for event in events if (event["name"], event["ph"]) == (name, edge)]


def check_pairs(events: list[Event]) -> None:
    begun = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    ended = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
    assert len(ended) > 0
    assert begun.keys() == ended.keys()
    assert all(begun[each] <= ended[each] for each in ended)


@pytest.mark.parametrize("lanes", ["1", "2"])
def test_each_rank_writes_what_its_operations_did(tmp_path: Path, lanes: str) -> None:
    for rank, events in enumerate(noted(tmp_path, -1, SPARSEWIRE_LANES=lanes)):
        check_pairs(events)
        (process,) = [event for event in events if event["ph"] == "M"]
        assert process["args"]["name"].startswith(f"rank {rank}: ")
        assert {event["pid"] for event in events} == {rank}
        names = Counter(event["name"] for event in events if event["ph"] == "b")
        assert names["all_reduce"] >= 7
        assert set(names) >= STAGES
        algorithms = {event["args"]["algorithm"] for event in named(events, "chosen", "n")}
        assert algorithms >= {"stream", "ssar_split_allgather"}
        sums = {
            event["id"]
            for event in named(events, "all_reduce")
            if event["args"]["elements"] == 300_000
        }
        densities = [
            event["args"]["density"]
            for event in named(events, "all_reduce", "e")
            if event["id"] in sums
        ]
        assert densities
        assert all(0.003 < density < 0.005 for density in densities)


def test_bytes_are_those_that_stats_counts(tmp_path: Path) -> None:
    (_, events), counted = noted_with_stats(tmp_path)
    for stage in ("send", "receive"):
        noted_bytes = sum(event["args"]["bytes"] for event in named(events, stage, "e"))
        assert noted_bytes == counted[stage]


def noted_with_stats(folder: Path) -> tuple[list[list[Event]], dict[str, int]]:
    environment = {"SPARSEWIRE_TIMELINE": str(folder / "run.json")}
    counted = run_ranks(2, count_all, environment=environment)
    files = [json.loads((folder / f"run.{rank}.json").read_text()) for rank in range(2)]
    return files, counted[1]


def count_all() -> dict[str, int]:
    with sparsewire.init() as comm:
        comm.all_reduce(np.ones(300_000, np.float32))
        meet("all have their result")
        counters = comm.engine.core.stats()
    return {"send": counters["bytes_sent"], "receive": counters["bytes_received"]}


def test_late_rank_is_named_by_those_who_wait(tmp_path: Path) -> None:
    first, second = noted(tmp_path, 1)
    last = max(event["args"]["operation"] for event in named(first, "all_reduce"))
    (wait,) = [event for event in named(first, "wait") if event["args"]["operation"] == last]
    (end,) = [event for event in named(first, "wait", "e") if event["id"] == wait["id"]]
    assert wait["args"]["ranks"] == [1]
    assert end["ts"] - wait["ts"] > 100_000
    longest = [event for event in named(second, "wait") if event["args"]["operation"] == last]
    assert all(event["args"]["ranks"] == [0] for event in longest)


def test_times_are_of_the_clock_that_hosts_share(tmp_path: Path) -> None:
    before = time.time()
    files = noted(tmp_path, -1)
    after = time.time()
    for event in (event for events in files for event in events if "ts" in event):
        assert before <= event["ts"] / 1e6 <= after


def test_waiting_for_an_aggregator_names_it(tmp_path: Path) -> None:
    with serving() as server:
        address = str(server.address)
        first, _ = noted(tmp_path, 1, SPARSEWIRE_AGGREGATORS=address)
    check_pairs(first)
    assert named(first, "wait")
    assert {event["args"].get("text") for event in named(first, "wait")} == {address}


@pytest.mark.chaos
def test_file_of_a_killed_process_opens_and_shows_what_it_waited_for(tmp_path: Path) -> None:
    environment = {"SPARSEWIRE_TIMELINE": str(tmp_path / "run.json")}
    run_ranks(2, wait_and_be_killed, environment=environment, dying=[0])
    events = json.loads((tmp_path / "run.0.json").read_text())
    last = max(event["args"]["operation"] for event in named(events, "all_reduce"))
    waits = [event for event in named(events, "wait") if event["args"]["operation"] == last]
    assert [event["args"]["ranks"] for event in waits] == [[1]]
    assert waits[0]["id"] not in [event["id"] for event in named(events, "wait", "e")]


def wait_and_be_killed() -> None:
    with sparsewire.init() as comm:
        comm.barrier()
        if comm.rank == 1:
            with pytest.raises(sparsewire.PeerLost):
                call_late(comm)
            return
        comm.all_reduce(np.ones(10, np.float32), async_op=True)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)


def call_late(comm: sparsewire.Communicator) -> None:
    """Once the other one is gone."""
    deadline = time.monotonic() + 20
    while comm.status()["failure"] is None and time.monotonic() < deadline:
        time.sleep(0.05)
    comm.all_reduce(np.ones(10, np.float32))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("timeline")
    noted(folder, -1)
    return (folder / "run.0.json").read_text()


@given(share=st.floats(0, 1))
def test_what_is_left_of_a_file_that_was_cut_opens(text: str, share: float) -> None:
    """Viewers need no end of the array; each line is an event, so the last one may be left out."""
    kept = text[: int(share * len(text))].rpartition("\n")[0].rstrip(",\n]")
    events = json.loads(kept + "\n]") if kept.strip("[\n") else []
    assert events == json.loads(text)[: len(events)]


def test_off_means_no_file(tmp_path: Path) -> None:
    run_ranks(2, leave_no_file, str(tmp_path))
    assert not list(tmp_path.iterdir())


def leave_no_file(folder: str) -> None:
    os.chdir(folder)
    with sparsewire.init() as comm:
        comm.barrier()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run.json", "run.3.json"),
        ("some.folder/run", "some.folder/run.3"),
        ("run-%r.json", "run-3.json"),
        ("%r/run-%p.json", "3/run-{process}.json"),
    ],
)
def test_each_rank_has_a_file_of_its_own(name: str, expected: str) -> None:
    assert timeline_path(name, 3) == Path(expected.format(process=os.getpid()))


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    (message,) = run_ranks(
        1, fail_to_start, environment={"SPARSEWIRE_TIMELINE": str(tmp_path / "no" / "run.json")}
    )
    assert "cannot write" in message
    assert "run.0.json: No such file or directory" in message


def fail_to_start() -> str:
    with pytest.raises(ValueError, match="SPARSEWIRE_TIMELINE") as caught:
        sparsewire.init()
    return str(caught.value)


def test_communicators_of_a_process_share_its_file(tmp_path: Path) -> None:
    environment = {"SPARSEWIRE_TIMELINE": str(tmp_path / "run.json")}
    run_ranks(2, use_two_after_another, environment=environment)
    assert len(list(tmp_path.iterdir())) == 2
    for rank in range(2):
        events = json.loads((tmp_path / f"run.{rank}.json").read_text())
        check_pairs(events)
        sums = named(events, "all_reduce")
        assert len([event for event in sums if event["args"]["elements"] == 777]) == 2


def use_two_after_another() -> None:
    for _ in range(2):
        with sparsewire.init() as comm:
            comm.all_reduce(np.ones(777, np.float32))
