"""Connections that are handed on to a parent: bytes, ends and resets pass, and little is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from support import until

from sparsewire.meeting.aggregators.aggregator import WorkerGuard
from sparsewire.meeting.aggregators.relay import Relay
from sparsewire.meeting.contact.handshake import ANY_PEER, Hello, Role, receive
from sparsewire.meeting.contact.listener import Listener
from sparsewire.meeting.contact.sockets import begin_connect, bind
from sparsewire.options import Address

KEY = bytes(range(32))
SEAT = (7, 1, 0)
OUTER_BUFFER = 1 << 20


def most_of(setting: str) -> int:
    """Of the kernel's buffers of a connection: the most bytes that it lets one grow to."""
    return int(Path(f"/proc/sys/net/ipv4/{setting}").read_text().split()[2])


def more_than_is_kept() -> int:
    """More bytes than the kernel keeps for a relay, its own buffers and both outer ends."""
    return most_of("tcp_rmem") + most_of("tcp_wmem") + 8 * OUTER_BUFFER


def worker_hello() -> Hello:
    return Hello(Role.WORKER, SEAT[0], 3, SEAT[1], ANY_PEER, SEAT[2], 2, bytes(32))


def connected_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        ours = socket.create_connection(door.getsockname())
        theirs, _ = door.accept()
    theirs.setblocking(False)
    return ours, theirs


@contextmanager
def arriving(
    guard: WorkerGuard, *, may_register: bool
) -> Iterator[tuple[Relay, Listener[Hello], socket.socket]]:
    """A relay, its parent that lets in by `guard`, and a worker's end of a connection to it."""
    with (
        closing(Listener(partial(receive, guard), bind("127.0.0.1", 0))) as parent,
        closing(Relay(parent.address, may_register=may_register)) as relay,
    ):
        ours, theirs = connected_pair()
        relay.add(theirs, worker_hello(), KEY)
        with ours:
            yield relay, parent, ours


@contextmanager
def relayed() -> Iterator[tuple[Relay, socket.socket, socket.socket]]:
    """A relay, and both outer ends of one connection through it: the worker's and the parent's."""
    guard = WorkerGuard(b"", 1, 8)
    with arriving(guard, may_register=True) as (relay, parent, ours):
        arrived: list[tuple[socket.socket, Hello]] = []
        until(lambda: arrived.extend(parent.poll(0.1)) or bool(arrived))
        far, hello = arrived[0]
        assert (hello.job, hello.rank, hello.lane) == SEAT
        assert guard.jobs[SEAT[0]].key == KEY
        far.settimeout(20)
        ours.settimeout(20)
        with far:
            yield relay, ours, far


def test_a_parent_with_another_secret_is_told_apart_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = WorkerGuard(b"a word of sixteen bytes or more", 1, 8)
    with arriving(guard, may_register=False) as (_, parent, _):
        who = "rank 1 of job 0000000000000007 at 127.0.0.1:"

        def is_logged(what: str) -> bool:
            parent.poll(0.01)
            texts = [one.getMessage() for one in caplog.records]
            return any(text.startswith(who) and what in text for text in texts)

        until(lambda: is_logged("is not let in by the parent"))
        until(lambda: is_logged("has another SPARSEWIRE_SECRET"))


def send_what_fits(source: socket.socket, data: bytes) -> int:
    """Until nothing more is taken for half a second."""
    sent = 0
    source.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += source.send(data[sent : sent + (1 << 18)])
    source.settimeout(20)
    return sent


def digest_of_all(source: socket.socket) -> str:
    digest = hashlib.sha256()
    while data := source.recv(1 << 16):
        digest.update(data)
    return digest.hexdigest()


@pytest.mark.parametrize("is_upward", [True, False], ids=["up", "down"])
def test_all_bytes_pass_and_a_slow_reader_holds_up_the_sender(is_upward: bool) -> None:
    with relayed() as (_, near, far):
        source, sink = (near, far) if is_upward else (far, near)
        source.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, OUTER_BUFFER)
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, OUTER_BUFFER)
        data = os.urandom(more_than_is_kept())
        sent = send_what_fits(source, data)
        assert sent < len(data)

        def send_rest() -> None:
            source.sendall(data[sent:])
            source.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send_rest)
        sender.start()
        assert digest_of_all(sink) == hashlib.sha256(data).hexdigest()
        sender.join()


def test_half_that_is_closed_leaves_the_other() -> None:
    with relayed() as (relay, near, far):
        near.sendall(b"last words")
        near.shutdown(socket.SHUT_WR)
        assert far.recv(100) == b"last words"
        assert far.recv(100) == b""
        far.sendall(b"and an answer")
        assert near.recv(100) == b"and an answer"
        assert relay.serves(SEAT)
        far.close()
        assert near.recv(100) == b""
        until(lambda: not relay.serves(SEAT))


def reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def hears_the_end(end: socket.socket) -> bool:
    try:
        return end.recv(100) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("is_upward", [True, False], ids=["worker", "parent"])
def test_reset_of_one_end_is_the_end_of_the_other(is_upward: bool) -> None:
    with relayed() as (relay, near, far):
        reset(near if is_upward else far)
        assert hears_the_end(far if is_upward else near)
        until(lambda: not relay.serves(SEAT))


def test_worker_is_let_go_where_nobody_listens() -> None:
    with bind("127.0.0.1", 0) as door:
        host, port = door.getsockname()
    with closing(Relay(Address(host, port), may_register=True)) as relay:
        ours, theirs = connected_pair()
        with ours:
            ours.settimeout(20)
            relay.add(theirs, worker_hello(), KEY)
            assert hears_the_end(ours)
            until(lambda: not relay.serves(SEAT))
            assert not relay.reaches_parent


def test_parent_that_answers_no_call_is_no_parent_until_it_does() -> None:
    """Its queue is full, so it neither takes nor refuses a connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as parent:
        address = Address(*parent.getsockname())
        callers = [begin_connect(address) for _ in range(3)]
        with closing(Relay(address, may_register=True)) as relay:
            time.sleep(0.5)
            assert not relay.reaches_parent
            for _ in callers[:2]:
                parent.accept()[0].close()
            until(lambda: relay.reaches_parent)
        for caller in callers:
            caller.close()


def test_parent_is_reached_again_once_it_listens() -> None:
    with closing(Listener(partial(receive, WorkerGuard(b"", 1, 8)), bind("127.0.0.1", 0))) as one:
        address = one.address
        with closing(Relay(address, may_register=True)) as relay:
            until(lambda: relay.reaches_parent)
            one.close()
            until(lambda: not relay.reaches_parent)
            with bind(*address):
                until(lambda: relay.reaches_parent)
