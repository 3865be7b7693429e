"""Several flows of a worker: each is bound apart, slots keep to theirs, and the queues of an
interface share them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest
from pyroute2 import IPRoute
from slot_wire import HELLO, SLOTS_IN_RUN, Slotted, flow_of, way_keys
from slot_worker import SlotWorker
from xdp_frames import frame
from xdp_kernel import (
    AGGREGATOR,
    DROP,
    FAR,
    NEAR,
    PASS,
    PORT,
    REDIRECT,
    Kernel,
    kernel,
    needs_kernel,
    worker_end,
)
from xdp_play import JOB, KEY, NO_COUNTS
from xdp_rack import GRO, bound, run, turn

from sparsewire.errors import Error
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane
from sparsewire.xdp.trial import statistics

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


# --- Queues ---

QUEUES, MANY_FLOWS = 4, 8
NEAR_ADDRESS, FAR_ADDRESS = "10.88.0.1", "10.88.0.2"


def connect(near: Namespace, far: Namespace) -> None:
    """By a veth with several queues each way, of which the sender's hash of a flow chooses one."""
    queues = {"num_tx_queues": QUEUES, "num_rx_queues": QUEUES}
    near.call(_make, queues)
    near.call(_hand_over, far)
    near.call(_bring_up, NEAR, NEAR_ADDRESS)
    far.call(_bring_up, FAR, FAR_ADDRESS)
    far.call(turn, FAR, GRO, on=True)


def _make(queues: dict[str, int]) -> None:
    with IPRoute() as route:
        route.link("add", ifname=NEAR, kind="veth", peer={"ifname": FAR, **queues}, **queues)


def _hand_over(to: Namespace) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=FAR)[0]
        route.link("set", index=index, net_ns_fd=to.descriptor)


def _bring_up(name: str, address: str) -> None:
    with IPRoute() as route:
        index = route.link_lookup(ifname=name)[0]
        route.addr("add", index=index, address=address, prefixlen=24)
        route.link("set", index=index, state="up")


def used_queues(flows: int) -> int:
    """How many queues the contributions of one worker come by."""
    with ExitStack() as stack:
        near, far = (stack.enter_context(closing(Namespace(f"xdp-{n}"))) for n in ("near", "far"))
        connect(near, far)
        plane = stack.enter_context(closing(near.call(XdpPlane, NEAR, PORT)))
        near.call(plane.add_job, JOB, 1, 1, way_keys(KEY))
        plane.set_flows(JOB, flows)
        sockets = [stack.enter_context(far.call(bound, FAR_ADDRESS, 0)) for _ in range(flows)]
        for flow, each in enumerate(sockets):
            each.connect((NEAR_ADDRESS, PORT))
            plane.bind_worker(JOB, 0, *each.getsockname(), flow=flow)
        add_up(sockets)
        return sum(
            name.startswith("rx_queue_") and name.endswith("_xdp_packets") and count > 5
            for name, count in near.call(statistics, NEAR)
        )


def add_up(sockets: list[socket.socket]) -> None:
    values = np.arange(64 * 400, dtype=np.int32)
    worker = SlotWorker(0, values, sockets, Slotted(JOB, 0, 0, 0, key=KEY), 0.0)
    run([worker], [sockets], 60)
    np.testing.assert_array_equal(worker.out.ravel(), values)


def test_several_flows_come_by_several_queues() -> None:
    assert used_queues(1) == 1
    # All by one queue is one case in 4^7.
    assert used_queues(MANY_FLOWS) > 1
