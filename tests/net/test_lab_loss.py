"""Lossy links of the lab: about as many packets are lost as asked for, each by itself."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import Iterator

import pytest
from test_lab import invoke, lab_test

from sparsewire.tools.lab import Lab, parse_loss

PORT = 7000
GREETING = b"hello"
SEGMENT, SEGMENTS = 100, 10
UDP_SEGMENT = 103
SO_RCVBUFFORCE = 33


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0.01", 0.01), (" 12.5 % ", 0.125), ("0", 0.0), (".5", 0.5)]
)
def test_parse_loss_reads_shares(text: str, share: float) -> None:
    assert parse_loss(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "some", "100%", "1", "-1%", "1%%", "nan"])
def test_parse_loss_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read loss"):
        parse_loss(text)


def test_a_bad_loss_is_a_usage_error() -> None:
    result = invoke("--loss", "half", "true")
    assert result.exit_code == 2
    assert "0.01" in result.stderr
    with pytest.raises(ValueError, match="loss is 1"):
        Lab(2, loss=1.0)


def bound_socket() -> socket.socket:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    own.bind(("0.0.0.0", PORT))
    own.settimeout(0.5)
    return own


def meet(lab: Lab, *sockets: socket.socket) -> None:
    """Let two hosts find out each other's hardware address: what asks for that is lost, too."""
    for one, other, address in zip(
        sockets, reversed(sockets), reversed(lab.addresses), strict=True
    ):
        for _ in range(20):
            one.sendto(GREETING, (address, PORT))
            with contextlib.suppress(TimeoutError):
                other.recv(2048)
                break


def received(own: socket.socket) -> Iterator[int]:
    """The numbers of the datagrams that arrive, until none has for a while."""
    with contextlib.suppress(TimeoutError):
        while True:
            datagram = own.recv(2048)
            # One may have been late.
            if datagram != GREETING:
                yield struct.unpack_from(">I", datagram)[0]


def numbered(first: int, count: int) -> bytes:
    return b"".join(struct.pack(">I", first + n).ljust(SEGMENT) for n in range(count))


def is_about(count: int, expected: float, of: int) -> bool:
    """Whether a count is within five deviations of what is expected of so many."""
    share = expected / of
    return abs(count - expected) <= 5 * math.sqrt(of * share * (1 - share))


@lab_test
@pytest.mark.parametrize("aggregators", [0, 1])
def test_each_direction_loses_its_share(aggregators: int) -> None:
    """Each datagram goes up one link and down another: that of a host, or of an aggregator."""
    loss, total, batch = 0.05, 10_000, 100
    with Lab(2 - aggregators, loss=loss, aggregators=aggregators) as lab:
        here, there = (lab.namespace(place).call(bound_socket) for place in (0, 1))
        with here, there:
            meet(lab, here, there)
            for one, other, address in ((here, there, 1), (there, here, 0)):
                count = 0
                for first in range(0, total, batch):
                    for number in range(first, first + batch):
                        one.sendto(numbered(number, 1), (lab.addresses[address], PORT))
                    other.settimeout(0.02)
                    count += sum(1 for _ in received(other))
                assert is_about(count, total * (1 - loss) ** 2, total), count


def super_datagrams(loss: float | None, total: int) -> list[int]:
    """Numbers of what arrives of datagrams that the sender gives to the system ten at a time."""
    with Lab(2, loss=loss) as lab:
        here, there = (lab.namespace(place).call(bound_socket) for place in (0, 1))
        with here, there:
            meet(lab, here, there)
            here.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT)
            for first in range(0, total, SEGMENTS):
                here.sendto(numbered(first, SEGMENTS), (lab.addresses[1], PORT))
            return list(received(there))


@lab_test
def test_datagrams_that_are_sent_as_one_are_lost_one_by_one() -> None:
    total = 2000
    arrived = super_datagrams(0.1, total)
    assert is_about(len(arrived), total * 0.81, total)
    of_each = [sum(n // SEGMENTS == group for n in arrived) for group in range(total // SEGMENTS)]
    assert sum(0 < count < SEGMENTS for count in of_each) > total // SEGMENTS // 2


@lab_test
def test_a_loss_of_zero_loses_nothing() -> None:
    assert sorted(super_datagrams(0.0, 500)) == list(range(500))


@lab_test
def test_tcp_gets_through_losses() -> None:
    from test_lab import seconds_to_send

    with Lab(2, "100mbit", loss=0.02) as lab:
        assert seconds_to_send(lab, 1_000_000) > 0.05
