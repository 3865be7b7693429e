"""A plane's process by itself: it answers greetings, and outlives all of them; what reaches it
instead of the programs, and must not, is told once."""

from __future__ import annotations

import errno
import math
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest
import slot_wire
from pyroute2 import IPRoute
from slot_wire import HELLO, Slotted, way_keys
from support import until
from xdp_kernel import NEAR, connect, needs_kernel
from xdp_rack import bound

from sparsewire._core import greeting, read_greeting
from sparsewire.meeting.aggregators import kernel_plane
from sparsewire.meeting.aggregators.kernel_plane import KernelPlane
from sparsewire.meeting.contact.greetings import NOTED, WELCOME
from sparsewire.meeting.contact.keys import WayKeys
from sparsewire.options import DATAGRAM_MAX, Address
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane

pytestmark = [*needs_kernel, pytest.mark.timeout(60)]

JOB, SIZE = 5, 1072
KEYS, ABOVE = WayKeys(*way_keys(bytes(32))), WayKeys(*way_keys(bytes(32), above=True))
FLAT, IN_RACK = (2, 2, 0, 1, SIZE, 2), (2, 4, 1, 2, SIZE, 2)


@dataclass
class Beside:
    """A plane whose greetings come by loopback, past its programs, and who is around it."""

    plane: KernelPlane
    worker: socket.socket
    root: socket.socket

    def greet(
        self,
        number: int,
        party: tuple[int, ...],
        size: int = SIZE,
        block: int = 0,
        flow: int = 0,
    ) -> None:
        says = {"number": number * 4 + 2, "block": block, "flow": flow}
        self.worker.send(greeting(KEYS.up, HELLO, JOB, 1, 0, size, party, **says))

    def noted(self, flow: int = 0) -> int:
        """The number that is answered next."""
        read = read_greeting(KEYS.down, received(self.worker))
        assert read
        assert (read[0], read[8]) == (NOTED, flow)
        return int(read[6]) // 4

    def asked(self) -> tuple[int, int]:
        """Number and size of the next greeting that comes to the root."""
        data = received(self.root)
        read = read_greeting(ABOVE.up, data)
        assert read
        return int(read[6]), len(data)

    def asked_for(self, size: int) -> int:
        """The number of the next one of this size."""
        return next(number for number, asked in iter(self.asked, None) if asked == size)

    def welcome(self) -> None:
        """As the root, what comes there next."""
        number, size = self.asked()
        above = (2, 4, 0, 1, SIZE, 1)
        words = greeting(ABOVE.down, WELCOME, JOB, 1, 1, size, above, number=number)
        self.root.sendto(words, self.worker.getpeername())

    def is_answered(self) -> bool:
        """Whether the plane has heard the root's answer to what comes there next."""
        self.welcome()
        time.sleep(0.01)
        return self.plane._jobs[JOB].unanswered <= 1

    @property
    def rejected(self) -> int:
        return self.plane.slots()[JOB]["rejected"]


def set_up() -> None:
    connect()
    with IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")


@contextmanager
def beside(*, in_rack: bool = False) -> Iterator[Beside]:
    with ExitStack() as stack:
        namespace = stack.enter_context(closing(Namespace("xdp-beside")))
        namespace.call(set_up)
        receiver, worker, root = (namespace.call(bound, "127.0.0.1", 0) for _ in range(3))
        for each in (worker, root):
            stack.enter_context(closing(each))
        worker.connect(receiver.getsockname())
        parent = Address(*root.getsockname()) if in_rack else None
        plane = stack.enter_context(closing(namespace.call(KernelPlane, NEAR, receiver, parent)))
        plane.add_job(JOB, 4 if in_rack else 2, 1, KEYS, ABOVE if in_rack else None)
        yield Beside(plane, worker, root)


def received(by: socket.socket) -> bytes:
    by.settimeout(10)
    return by.recv(1 << 16)


def test_contributions_that_pass_by_the_programs(caplog: pytest.LogCaptureFixture) -> None:
    with beside() as at:
        for job in (6, 5, 5):
            at.worker.send(Slotted(job, 0, 0, 0).encoded())
        until(lambda: "pass by" in caplog.text)
    assert caplog.text.count(f"contributions pass by {NEAR}") == 1
    assert "job 0000000000000005" in caplog.text


def test_greetings_that_pass_by_the_programs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with another --interface than the one by which they come."""
    monkeypatch.setattr(kernel_plane, "_SETTLED_S", math.inf)
    with beside() as at:
        for number, block in ((1, 256), (2, 256), (3, 0)):
            at.greet(number, FLAT, block=block)
            assert at.noted() == number
        assert "pass by" not in caplog.text  # Those may have been on their way when it was bound.
        monkeypatch.setattr(kernel_plane, "_SETTLED_S", 0.0)
        at.greet(4, FLAT)
        assert at.noted() == 4
        assert "pass by" not in caplog.text
        for number in (5, 6):
            at.greet(number, FLAT, block=256)
            assert at.noted() == number
    assert caplog.text.count(f"greetings pass by {NEAR}") == 1
    assert "`--interface`" in caplog.text


@pytest.fixture
def long_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_wire, "PAIRS", 1200)
    monkeypatch.setattr(slot_wire, "_nh_keys", {})


@pytest.mark.usefixtures("long_tags")
def test_a_hello_longer_than_any_datagram_is_rejected() -> None:
    # The first two numbers of a greeting stand where other datagrams name the next block.
    values = FLAT[2:] + (0,) * (DATAGRAM_MAX // 4 - 13)
    says = Slotted(JOB, 0, 0, 6, *FLAT[:2], values, HELLO, block=0, columns=0, present=0, dtype=0)
    words = says.encoded()
    assert len(words) > DATAGRAM_MAX
    with beside() as at:
        at.worker.send(words)
        until(lambda: at.rejected == 1)
        at.greet(2, FLAT)
        assert at.noted() == 2


@pytest.mark.parametrize("in_rack", [False, True])
def test_flows_are_those_of_the_first_greeting(in_rack: bool) -> None:
    party = IN_RACK if in_rack else FLAT
    with beside(in_rack=in_rack) as at:
        at.greet(1, party)
        until(lambda: JOB in at.plane.slots())
        for number, flows in enumerate((1, 3, 8), 1):
            at.greet(1 + number, (*party[:5], flows))
            until(lambda expected=number: at.rejected == expected)


def test_each_flow_is_noted_by_itself() -> None:
    with beside() as at:
        for flow, number in enumerate((5, 1)):
            at.greet(number, FLAT, flow=flow)
            assert at.noted(flow) == number


def test_a_hello_that_asks_for_more_than_a_block_is_rejected() -> None:
    with beside(in_rack=True) as at:
        at.greet(1, IN_RACK)
        first = at.asked_for(SIZE)
        at.greet(2, IN_RACK, 112, block=65535)
        until(lambda: at.rejected == 1)
        at.greet(3, IN_RACK)
        assert at.asked_for(SIZE) > first


def test_a_rack_asks_its_root_for_no_more_than_programs_send() -> None:
    with beside(in_rack=True) as at:
        at.greet(1, IN_RACK, DATAGRAM_MAX)
        assert at.asked_for(SIZE) > 0


def test_a_rack_greets_its_root_again_by_itself() -> None:
    with beside(in_rack=True) as at:
        at.greet(1, IN_RACK)
        first = at.asked_for(SIZE)
        seconds = [at.asked_for(112) for _ in range(2)]
        assert first < seconds[0] < seconds[1]


def test_a_rack_whose_root_answers_no_more_answers_no_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(kernel_plane, "_REMINDER_S", 0.05)
    monkeypatch.setattr(XdpPlane, "forget_way_up", lambda _, job: forgotten.append(job))
    with beside(in_rack=True) as at:
        at.greet(1, IN_RACK)
        for _ in range(8):
            at.welcome()
        until(lambda: len(forgotten) >= 2)
        assert set(forgotten) == {JOB}
        until(at.is_answered)
    assert caplog.text.count("answers no datagrams") == 1


def test_a_rack_whose_root_cannot_be_reached_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(number: int, *_: object) -> None:
        tries.append(number)
        raise OSError(errno.ENETUNREACH, "no way there")

    with beside(in_rack=True) as at:
        at.greet(1, IN_RACK)
        at.asked_for(SIZE)
        with monkeypatch.context() as broken:
            broken.setattr(at.plane, "_greet_parent", fail)
            until(lambda: len(tries) == 2)
        assert at.asked_for(112) > 0


@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no memory"), ZeroDivisionError("odd")])
def test_greetings_that_fail_are_counted_and_told_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    with beside() as at:
        with monkeypatch.context() as broken:
            broken.setattr(at.plane._plane, "bind_worker", fail)
            for number in (1, 2):
                at.greet(number, FLAT)
            until(lambda: at.rejected == 2)
        at.greet(3, FLAT)
        assert at.noted() == 3
    assert caplog.text.count(f"rank 0 is not taken: {error}") == 1
