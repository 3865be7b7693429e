"""Whom an aggregator lets in, and what the others hear: its limits are those of its engine, and it
is one aggregator of the job to all of its ranks."""

from __future__ import annotations

import pytest

from sparsewire.meeting.aggregators.aggregator import Job, WorkerGuard
from sparsewire.meeting.contact.handshake import (
    ANY_PEER,
    KERNEL_JOBS_MAX,
    KERNEL_WORKERS_MAX,
    Hello,
    Reason,
    Refused,
    Role,
    new_nonce,
)
from sparsewire.meeting.contact.keys import aggregator_number, datagram_keys, number_above

KEY = bytes(range(32))


def hello(job: int = 1, rank: int = 0, world_size: int = 2, number: int = 0) -> Hello:
    return Hello(Role.WORKER, job, 1, rank, number, 0, world_size, new_nonce())


def enter(guard: WorkerGuard, said: Hello) -> None:
    guard.key_for(said)
    guard.enter(said, KEY)


def in_kernel(guard: WorkerGuard) -> WorkerGuard:
    guard.in_kernel = True
    return guard


def refusal(guard: WorkerGuard, said: Hello) -> str:
    with pytest.raises(Refused) as refused:
        enter(guard, said)
    return str(refused.value)


def test_jobs_beyond_those_of_the_kernel_hear_of_its_limit() -> None:
    guard = in_kernel(WorkerGuard(b"", 64, 1024))
    for job in range(KERNEL_JOBS_MAX):
        enter(guard, hello(job))
    assert "8 jobs at most in its kernel" in refusal(guard, hello(99))
    enter(guard, hello(0, rank=1))  # Of a job that is here.
    assert "--max-jobs" in refusal(in_kernel(WorkerGuard(b"", 0, 1024)), hello())


def test_ranks_beyond_those_of_the_kernel_hear_of_its_limit() -> None:
    guard = in_kernel(WorkerGuard(b"", 64, 1024))
    enter(guard, hello(1, world_size=KERNEL_WORKERS_MAX))
    assert "32 ranks of a job at most" in refusal(guard, hello(2, world_size=33))
    # Of a rack's aggregator they are those of all racks.
    enter(in_kernel(WorkerGuard(b"", 64, 1024, in_rack=True)), hello(world_size=33))
    enter(WorkerGuard(b"", 64, 1024), hello(world_size=1024))


def test_job_that_cannot_be_served_is_refused_and_leaves_nothing() -> None:
    def admit(number: int, job: Job) -> None:
        raise Refused(Reason.UNSERVED)

    guard = WorkerGuard(b"", 64, 1024, admit=admit)
    assert "its log says why" in refusal(guard, hello())
    assert guard.jobs == {}


def test_a_job_that_fails_to_begin_is_forgotten_below_at_once() -> None:
    below = set[int]()
    guard = WorkerGuard(
        *(b"", 64, 1024), admit=lambda number, job: below.add(number), forget=below.remove
    )
    enter(guard, hello(7))
    enter(guard, hello(7, rank=1))
    guard.leave(hello(7))
    assert below == {7}
    guard.leave(hello(7, rank=1))
    assert below == set()


def test_all_workers_call_an_aggregator_alike() -> None:
    guard = WorkerGuard(b"", 64, 1024)
    enter(guard, hello(number=aggregator_number(1)))
    assert "order of aggregators" in refusal(guard, hello(rank=1, number=aggregator_number(0)))
    enter(guard, hello(rank=1, number=aggregator_number(1)))


@pytest.mark.parametrize("number", [number_above(0), ANY_PEER])
def test_racks_stand_below_a_root(number: int) -> None:
    enter(WorkerGuard(b"", 64, 1024), hello(number=number))
    assert "names the root" in refusal(
        WorkerGuard(b"", 64, 1024, in_rack=True), hello(number=number)
    )


def test_keys_differ_by_aggregator_level_direction_and_epoch() -> None:
    numbers = [aggregator_number(index, rack) for index in range(4) for rack in range(4)]
    numbers += [number_above(aggregator_number(index)) for index in range(4)]
    keys = [datagram_keys(KEY, epoch, number) for epoch in range(3) for number in numbers]
    assert len({key for ways in keys for key in ways}) == 2 * 3 * 20
    assert repr(keys[0]) == "WayKeys()"
