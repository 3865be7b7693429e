"""What reaches the process instead of the programs, and must not, is told once."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from pyroute2 import IPRoute
from slot_wire import Slotted
from xdp_kernel import NEAR, connect, needs_kernel
from xdp_rack import bound

from sparsewire.lab.namespace import Namespace
from sparsewire.meeting.kernel_plane import KernelPlane

pytestmark = [*needs_kernel, pytest.mark.timeout(60)]


def set_up() -> None:
    connect()
    with IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")


def test_contributions_that_pass_by_the_programs(caplog: pytest.LogCaptureFixture) -> None:
    with closing(Namespace("xdp-beside")) as namespace:
        namespace.call(set_up)
        receiver, sender = (namespace.call(bound, "127.0.0.1", 0) for _ in range(2))
        to = receiver.getsockname()
        with closing(sender), closing(namespace.call(KernelPlane, NEAR, receiver)) as plane:
            plane.add_job(5, 2, 1, bytes(32))
            for job in (6, 5, 5):
                sender.sendto(Slotted(job, 0, 0, 0).encoded(), to)
            deadline = time.monotonic() + 10
            while "pass by" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.05)
    assert caplog.text.count(f"contributions pass by {NEAR}") == 1
    assert "job 0000000000000005" in caplog.text
