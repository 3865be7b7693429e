"""Several flows of a worker: each is bound apart, and slots keep to theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slot_wire import HELLO, SLOTS_IN_RUN, Slotted, flow_of
from xdp_frames import frame
from xdp_kernel import (
    AGGREGATOR,
    DROP,
    PASS,
    REDIRECT,
    Kernel,
    kernel,
    needs_kernel,
    worker_end,
)
from xdp_play import JOB, KEY, NO_COUNTS

from sparsewire.errors import Error

pytestmark = [*needs_kernel, pytest.mark.timeout(120)]

FLOWS = 4
FIRST = Slotted(JOB, 0, 5, 0, values=tuple(range(16)), key=KEY)
GREETS = Slotted(
    JOB, 0, 0, 7, kind=HELLO, columns=0, present=0, block=256, values=(0,) * 256, key=KEY
)


@pytest.fixture(scope="module")
def programs() -> Iterator[Kernel]:
    with kernel() as running:
        yield running


@pytest.fixture
def job(programs: Kernel) -> Iterator[Kernel]:
    programs.add_job(JOB, 2, KEY, flows=FLOWS)
    yield programs
    programs.plane.remove_job(JOB)


def send_by(job: Kernel, flow: int, sent: Slotted) -> int:
    came = frame(worker_end(sent.worker, flow=flow), AGGREGATOR, sent.encoded())
    return job.run(came)[0]


def test_a_slot_is_taken_from_its_flow_alone(job: Kernel) -> None:
    for slot in (0, 7, 8, 30, 127):
        sent = FIRST.but(slot=slot)
        for flow in range(FLOWS):
            if flow != flow_of(slot, FLOWS):
                assert send_by(job, flow, sent) == DROP
        assert job.plane.stats(JOB)["contributions"] == 0
        assert send_by(job, flow_of(slot, FLOWS), sent) == DROP
        assert send_by(job, flow_of(slot, FLOWS), sent.but(worker=1)) == REDIRECT
        assert job.plane.stats(JOB) == {
            **NO_COUNTS,
            "contributions": 2,
            "results": 1,
            "rejected": FLOWS - 1,
        }
        job.plane.remove_job(JOB)
        job.add_job(JOB, 2, KEY, flows=FLOWS)


def test_each_flow_is_welcomed_where_it_is(job: Kernel) -> None:
    for flow in range(FLOWS):
        greets = GREETS.but(slot=flow * SLOTS_IN_RUN)
        came = frame(worker_end(0, flow=flow), AGGREGATOR, greets.encoded())
        verdict, data = job.run(came)
        assert verdict == REDIRECT
        assert job.addressee(JOB, data) == (greets.slot, 0, 0)
        assert job.path(JOB, 0, flow) == AGGREGATOR.mac + worker_end(0).mac
        assert send_by(job, (flow + 1) % FLOWS, greets.but(round=9)) == PASS


def test_a_flow_moves_by_its_own_greetings(job: Kernel) -> None:
    job.plane.bind_worker(JOB, 0, "10.0.0.1", 6000, number=9, flow=1)
    with pytest.raises(Error, match="old greeting"):
        job.plane.bind_worker(JOB, 0, "10.0.0.1", 6001, number=9, flow=1)
    job.plane.bind_worker(JOB, 0, "10.0.0.1", 6002, number=2, flow=2)
    assert send_by(job, 0, FIRST.but(slot=0)) == DROP
    assert job.plane.stats(JOB)["contributions"] == 1


def test_flows_that_cannot_be(job: Kernel) -> None:
    for flows in (0, 9):
        with pytest.raises(Error, match="1 to 8 flows"):
            job.plane.set_flows(JOB, flows)
    with pytest.raises(Error, match="worker 0 and its flow 4"):
        job.plane.bind_worker(JOB, 0, "10.0.0.1", 6000, flow=FLOWS)
