"""Communicators of the same processes: they share connections, and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from meeting import MEETING_PLACE, meet
from support import run_ranks

import sparsewire
from sparsewire.meeting import connect, startup
from sparsewire.meeting.mesh import shared_mesh
from sparsewire.meeting.places.store_place import FileStore

# Nothing is measured with these, so that nobody is connected before the first collective.
LAZY = {"SPARSEWIRE_LINK": "1e-4,1e-9,4e-9"}


def group(name: str, ranks: list[int], **settings: float) -> sparsewire.Communicator | None:
    """A communicator of some ranks; None for all others."""
    rank = int(os.environ["RANK"])
    if rank not in ranks:
        return None
    store = FileStore(Path(os.environ[MEETING_PLACE], name))
    place = {"rank": ranks.index(rank), "world_size": len(ranks)}
    return sparsewire.init(store, **place, **{"timeout": 30, **settings})


def total(communicator: sparsewire.Communicator, size: int = 200_000) -> float:
    return float(communicator.all_reduce(np.ones(size, np.float32))[0])


def many_subgroups() -> tuple[list[float], list[int]]:
    world = int(os.environ["WORLD_SIZE"])
    sums = []
    with sparsewire.init(timeout=30) as everybody:
        some = [group(f"group-{n}", sorted({(n + k) % world for k in range(6)})) for n in range(10)]
        here = [one for one in some if one is not None]
        works = [one.all_reduce(np.ones(200_000, np.float32), async_op=True) for one in here]
        sums = [float(work.wait()[0]) for work in works]
        sums.append(total(everybody))
        found = shared_mesh.connections()
        for one in here:
            one.close()
        sums.append(total(everybody))
        meet("done")
    return sums, found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        LAZY,
        {**LAZY, "SPARSEWIRE_SHARED_MEMORY": "0"},
        {**LAZY, "SPARSEWIRE_LANES": "2", "SPARSEWIRE_MEMORY": "8"},
    ],
)
def test_ten_subgroups_of_a_job_of_eight_take_seven_connections(settings: dict[str, str]) -> None:
    for sums, found in run_ranks(8, many_subgroups, environment=settings, deadline_s=60):
        assert found == [7]
        assert set(sums) == {6.0, 8.0}


def only_who_must() -> tuple[list[int], list[int], list[int]]:
    with sparsewire.init(timeout=30) as communicator:
        first = shared_mesh.connections()
        meet("here")
        total(communicator, 10)
        meet("after one chunk")
        second = shared_mesh.connections()
        meet("counted")
        total(communicator)
        third = shared_mesh.connections()
        meet("after all chunks")
        return first, second, third


def test_ranks_are_connected_once_they_have_something_to_say() -> None:
    found = run_ranks(4, only_who_must, environment=LAZY)
    assert [first for first, _, _ in found] == [[0]] * 4
    assert sorted(second[0] for _, second, _ in found) == [1, 1, 1, 3]
    assert [third for _, _, third in found] == [[3]] * 4


def reduce_three_chunks() -> int:
    with sparsewire.init(timeout=250) as communicator:
        assert total(communicator, 3 * 4096) == communicator.world_size
        meet("reduced")
        connections = shared_mesh.connections()[0]
        meet("counted")
        return connections


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [12, pytest.param(256, marks=pytest.mark.exhaustive)])
def test_a_tensor_of_three_chunks_has_ranks_talk_to_three_owners(ranks: int) -> None:
    patient = {**LAZY, "SPARSEWIRE_PEER_TIMEOUT": "240"}
    found = run_ranks(ranks, reduce_three_chunks, deadline_s=250, environment=patient)
    assert sorted(found) == [3] * (ranks - 3) + [ranks - 1] * 3


def close_in_any_order() -> tuple[int, int]:
    before = len(os.listdir("/proc/self/fd"))
    first = sparsewire.init(timeout=30)
    second = group("second", [0, 1, 2])
    assert second
    total(second)
    meet("both work")
    first.close()
    total(second)
    third = group("third", [2, 1, 0])
    assert third
    found = len(shared_mesh.connections())
    second.close()
    total(third)
    meet("the last works")
    third.close()
    return found, len(os.listdir("/proc/self/fd")) - before


def test_the_last_communicator_closes_the_connections() -> None:
    assert run_ranks(3, close_in_any_order) == [(1, 0)] * 3


def come_and_go() -> tuple[list[int], float]:
    with sparsewire.init(timeout=30) as everybody:
        total(everybody)
        place = Path(os.environ[MEETING_PLACE], "passing")
        store, left = FileStore(place), []
        for number in range(200):
            with sparsewire.init(
                store, rank=everybody.rank, world_size=everybody.world_size, timeout=30
            ) as passing:
                assert total(passing, 10) == everybody.world_size
            if number in (0, 99, 199):
                meet(f"after {number}")
                left.append(len(list(place.iterdir())))
                meet(f"counted after {number}")
        return left, total(everybody)


@pytest.mark.timeout(120)
def test_two_hundred_groups_that_came_and_went_leave_one_record_in_the_store() -> None:
    assert run_ranks(3, come_and_go, environment=LAZY, deadline_s=90) == [([1, 1, 1], 3.0)] * 3


def with_two_lanes() -> list[int]:
    with sparsewire.init(timeout=30) as one, sparsewire.init(lanes=2, timeout=30) as two:
        total(one)
        total(two)
        found = shared_mesh.connections()
        meet("both work")
        return found


def test_other_settings_take_connections_of_their_own() -> None:
    assert run_ranks(2, with_two_lanes) == [[1, 1]] * 2


def abort_one() -> tuple[str, float]:
    with sparsewire.init(timeout=30) as staying:
        going = group("going", [0, 1, 2])
        assert going
        total(going)
        meet("both work")
        if staying.rank == 1:
            going.abort("enough")
        with pytest.raises(sparsewire.Error) as failed:
            total(going)
        going.close()
        meet("aborted")
        return str(failed.value), total(staying)


def test_a_communicator_that_aborts_leaves_the_others_alone() -> None:
    for message, value in run_ranks(3, abort_one):
        assert "rank 1 aborted: enough" in message
        assert value == 3.0


def fail_to_join() -> tuple[str, list[float]]:
    with sparsewire.init(timeout=30) as everybody:
        total(everybody)
        meet("connected")
        if everybody.rank == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(connect, "Core", refuse_to_start)
                with pytest.raises(MemoryError):
                    group("two", [0, 1])
        message = ""
        if everybody.rank == 1:
            with pytest.raises(sparsewire.PeerLost) as lost:
                total(cast(sparsewire.Communicator, group("two", [0, 1])))
            message = str(lost.value)
        meet("tried")
        return message, [total(everybody) for _ in range(3)]


def refuse_to_start(*_: object, **__: object) -> None:
    raise MemoryError("no thread was left")


# The members would wait for it until the time to start is over, and rank 2 would, too.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("settings", [{}, LAZY])
def test_a_rank_that_fails_to_join_is_named_by_members_and_harms_nobody_else(
    settings: dict[str, str],
) -> None:
    found = run_ranks(3, fail_to_join, environment=settings)
    assert "rank 0 could not join the group: MemoryError: no thread was left" in found[1][0]
    assert [sums for _, sums in found] == [[3.0] * 3] * 3


def give_up_waiting() -> tuple[str, float]:
    message = ""
    with sparsewire.init(timeout=30) as everybody:
        total(everybody)
        for rank in (1, 0, 2):
            if everybody.rank == rank:
                with pytest.raises(sparsewire.Timeout) as late:
                    group("three", [0, 1, 2], timeout=0.5 if rank == 1 else 20)
                message = str(late.value)
            if rank == 1:
                meet("given up")
        meet("tried")
        return message, total(everybody)


# The others would meet without it, and what they send would hold up all that it is in.
@pytest.mark.timeout(60)
def test_a_rank_that_gives_up_the_meeting_ends_it_and_harms_nobody_else() -> None:
    found = run_ranks(4, give_up_waiting)
    assert found[1][0].startswith("ranks 0, 2 did not show up")
    assert all("a rank gave up waiting" in found[rank][0] for rank in (0, 2))
    assert [value for _, value in found] == [4.0] * 4


def join_too_late() -> tuple[str, float]:
    """Rank 2 takes the meeting for complete, and rank 0 has given it up."""
    message = ""
    with sparsewire.init(timeout=30) as everybody:
        total(everybody)
        if everybody.rank == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(startup, "_check_secrets", refuse_records)
                with pytest.raises(sparsewire.Timeout):
                    group("two", [0, 2])
        if everybody.rank == 2:
            with pytest.raises(sparsewire.PeerLost) as lost:
                total(cast(sparsewire.Communicator, group("two", [0, 2])))
            message = str(lost.value)
        meet("tried")
        return message, total(everybody)


def refuse_records(*_: object) -> None:
    raise sparsewire.Timeout("too late")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("settings", [{}, LAZY])
def test_a_rank_that_gives_up_once_all_have_met_tells_those_that_ask(
    settings: dict[str, str],
) -> None:
    found = run_ranks(3, join_too_late, environment=settings)
    assert "rank 0 could not join the group: Timeout: too late" in found[2][0]
    assert [value for _, value in found] == [3.0] * 3


def fail_behind_the_engine() -> tuple[str, float, list[int]]:
    message = ""
    with sparsewire.init(timeout=30) as everybody:
        total(everybody)
        if everybody.rank == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(connect, "Communicator", refuse_to_start)
                with pytest.raises(MemoryError):
                    group("two", [0, 1])
        if everybody.rank == 1:
            two = cast(sparsewire.Communicator, group("two", [0, 1]))
            with two, pytest.raises(sparsewire.Error) as failed:
                total(two)
            message = str(failed.value)
        meet("tried")
        value = total(everybody)
    return message, value, shared_mesh.connections()


@pytest.mark.timeout(60)
def test_a_communicator_that_cannot_be_made_says_so_and_lets_go_of_the_mesh() -> None:
    found = run_ranks(3, fail_behind_the_engine, environment=LAZY)
    assert "no thread was left" in found[1][0]
    assert [(value, left) for _, value, left in found] == [(3.0, [])] * 3


def die_before_anything() -> tuple[str, float] | None:
    communicator = sparsewire.init(timeout=30)
    meet("here")
    if communicator.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        total(communicator, 10)
    except sparsewire.PeerLost as error:
        return str(error), time.monotonic() - start
    finally:
        communicator.close()
    return None


@pytest.mark.chaos
def test_a_rank_that_dies_is_named_by_those_that_were_never_connected_with_it() -> None:
    *found, _ = run_ranks(4, die_before_anything, environment=LAZY, dying=[3])
    for message, _ in found:
        assert "rank 3" in message


def go_on(communicator: sparsewire.Communicator) -> None:
    while True:
        total(communicator, 400_000)


def die_while_connecting(after_s: float) -> str:
    communicator = sparsewire.init(timeout=30)
    meet("here")
    if communicator.rank == 4:
        threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    with pytest.raises(sparsewire.PeerLost) as lost:
        go_on(communicator)
    communicator.close()
    return str(lost.value)


@pytest.mark.chaos
@pytest.mark.matrix
@pytest.mark.parametrize("after_ms", [0, 1, 2, 4, 6, 8, 10, 15, 20, 30])
@pytest.mark.parametrize("shared", ["0", "1"])
def test_a_rank_that_dies_while_all_connect_is_named_on_all_others(
    after_ms: int, shared: str
) -> None:
    settings = {**LAZY, "SPARSEWIRE_SHARED_MEMORY": shared}
    found = run_ranks(6, die_while_connecting, after_ms / 1e3, environment=settings, dying=[4])
    for rank, message in enumerate(found):
        assert rank == 4 or "rank 4" in message


def leave_before_anything() -> str:
    communicator = sparsewire.init(timeout=30)
    meet("here")
    if communicator.rank == 2:
        communicator.close()
    meet("one has left")
    if communicator.rank == 2:
        return ""
    with pytest.raises(sparsewire.PeerLost) as lost:
        total(communicator, 10)
    communicator.close()
    return str(lost.value)


def test_a_rank_that_left_is_named_by_those_that_were_never_connected_with_it() -> None:
    first, second, _ = run_ranks(3, leave_before_anything, environment=LAZY)
    assert "rank 2" in first
    assert "rank 2" in second


def agree() -> tuple[float, tuple[float, float, float]]:
    with sparsewire.init(timeout=250) as communicator:
        return total(communicator, 10), communicator.link


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "ranks", [20, pytest.param(256, marks=[pytest.mark.exhaustive, pytest.mark.timeout(300)])]
)
def test_many_ranks_meet_and_agree(ranks: int) -> None:
    # With a hundred processes for each processor, one may not get its turn for many seconds.
    patient = {"SPARSEWIRE_PEER_TIMEOUT": "240"}
    found = run_ranks(ranks, agree, deadline_s=250, environment=patient)
    assert found == [(float(ranks), found[0][1])] * ranks


def same_meshes_in_another_order() -> tuple[float, int]:
    """Ranks 0 and 1 have two meshes in common; rank 1 came to have them the other way round."""
    with (
        sparsewire.init(timeout=30) as everybody,
        sparsewire.init(FileStore(place("lanes")), lanes=2, timeout=30) as other,
    ):
        meshes = shared_mesh._open
        # As if both had been asked for the same number of lanes, in threads.
        meshes[1]._terms = meshes[0]._terms
        if everybody.rank == 1:
            meshes.reverse()
        group = sparsewire.init(FileStore(place("group")), timeout=10)
        found = total(group), len(shared_mesh.connections())
        total(other)
        group.close()
    return found


def place(name: str) -> Path:
    return Path(os.environ[MEETING_PLACE], name)


def test_ranks_choose_the_same_mesh_of_several_in_common() -> None:
    assert run_ranks(2, same_meshes_in_another_order, environment=LAZY) == [(2.0, 2)] * 2


def test_ranks_that_are_threads_of_one_process_share_no_mesh(tmp_path: Path) -> None:
    def rank_(rank: int, store: str) -> sparsewire.Communicator:
        return sparsewire.init(FileStore(tmp_path / store), rank=rank, world_size=2, timeout=5)

    with ThreadPoolExecutor(2) as ranks:
        for name in ("first", "second"):
            pair = list(ranks.map(rank_, range(2), [name] * 2))
            assert list(ranks.map(total, pair)) == [2.0, 2.0]


def limit_of_descriptors() -> tuple[int, int]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096))
    with sparsewire.init(timeout=30, lanes=8):
        one = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        with sparsewire.init(FileStore(place("lanes")), timeout=30, lanes=4):
            return one, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_the_limit_of_descriptors_counts_the_meshes_that_are_open() -> None:
    for one, both in run_ranks(3, limit_of_descriptors, environment=LAZY):
        assert both - one == 3 * 4
