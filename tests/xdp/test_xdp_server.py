"""An aggregator's server with programs in the kernel: whether they serve, and what is left of jobs
that end at once: nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from pyroute2 import IPRoute
from xdp_kernel import FAR, NEAR, connect, needs_kernel
from xdp_rack import GRO, turn

import sparsewire
from sparsewire.meeting.aggregators.aggregator import AggregatorServer
from sparsewire.meeting.contact.handshake import KERNEL_JOBS_MAX, Hello, Role, new_nonce
from sparsewire.meeting.contact.keys import datagram_keys
from sparsewire.options import Address
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane, loader

pytestmark = [*needs_kernel, pytest.mark.timeout(60)]


def set_up() -> None:
    connect()
    with IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
    turn(FAR, GRO, on=True)


def start(transport: str, parent: Address | None) -> AggregatorServer:
    here = Address("127.0.0.1", 0)
    return AggregatorServer(here, transport=transport, interface=NEAR, parent=parent)


@contextmanager
def server(transport: str = "xdp", parent: Address | None = None) -> Iterator[AggregatorServer]:
    with closing(Namespace("xdp-server")) as namespace:
        namespace.call(set_up)
        with closing(namespace.call(start, transport, parent)) as started:
            yield started


def come_and_go(to: AggregatorServer, job: int, key: bytes) -> None:
    """A first worker that proves itself, and is gone before it is seated."""
    said = Hello(Role.WORKER, job, 1, 0, 0, 0, 2, new_nonce())
    to._guard.enter(said, key)
    to._guard.leave(said)


def test_a_job_that_ends_at_once_leaves_no_key_behind() -> None:
    with server() as started:
        come_and_go(started, 1, bytes(32))
        said = Hello(Role.WORKER, 1, 1, 0, 0, 0, 2, new_nonce())
        other = bytes(range(32))
        started._guard.enter(said, other)
        assert started._plane._kernel._jobs[1].keys == datagram_keys(other, 1, 0)


def test_jobs_that_end_at_once_leave_room_for_others() -> None:
    with server() as started:
        for job in range(KERNEL_JOBS_MAX + 1):
            come_and_go(started, job, bytes(32))
        assert started._plane.slots() == {}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The programs are loaded once, and never again."""
    count: list[int] = []
    load = loader._load

    def load_once(programs: int) -> None:
        count.append(programs)
        if len(count) > 1:
            raise sparsewire.Error("the kernel takes these programs once")
        load(programs)

    monkeypatch.setattr(loader, "_load", load_once)
    return count


@pytest.mark.parametrize("in_rack", [False, True])
def test_auto_serves_with_the_programs_that_it_has_tried(loads: list[int], in_rack: bool) -> None:
    with server("auto", parent=Address("127.0.0.1", 9) if in_rack else None) as started:
        status = started.status()
    assert (status.transport, status.interface, status.hook) == ("xdp", NEAR, "xdp")
    assert len(loads) == 1


@pytest.mark.parametrize("part", ["_open_maps", "_attach"])
def test_auto_takes_udp_where_the_system_refuses(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(XdpPlane, part, fail)
    with server("auto") as started:
        status = started.status()
    assert (status.transport, status.interface) == ("udp", "")
    assert "by udp: [Errno 12] no memory" in caplog.text
