"""Ranks that connect over real sockets, both at once and with strangers at the door."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

import pytest

from sparsewire.errors import AuthenticationError, ProtocolError
from sparsewire.meeting.contact.dial import Membership, dial, name_ranks
from sparsewire.meeting.contact.handshake import Hello, Reason, Refused, Role, receive
from sparsewire.meeting.contact.listener import Listener
from sparsewire.meeting.contact.sockets import LocalAddress, bind, bind_local, local_end
from sparsewire.meeting.mesh.caller import Seat
from sparsewire.meeting.mesh.porter import MeshGuard, Porter
from sparsewire.meeting.network.routes import Routes
from sparsewire.options import Address

KEY = bytes(range(32))
MEMBER = Membership(job=7, epoch=0, rank=0, world_size=3, lanes=2, key=KEY)
LIMIT_S = 10.0


class Engine:
    """What a porter knows of the engine: peers to be called, and what becomes of them."""

    def __init__(self) -> None:
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.calls: list[int] = []
        self.called: list[int] = []
        self.connected: dict[Seat, socket.socket] = {}
        self.twice: list[Seat] = []
        self.lost: dict[int, str] = {}

    def ask(self, peer: int) -> None:
        self.calls.append(peer)
        os.eventfd_write(self.bell, 1)

    def calls_fd(self) -> int:
        return self.bell

    def take_calls(self) -> list[int]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        calls, self.calls = self.calls, []
        return calls

    def note_call(self, peer: int) -> None:
        self.called.append(peer)

    def adopt(self, lane: int, peer: int, fd: int) -> None:
        if (peer, lane) in self.connected:
            self.twice.append((peer, lane))
        self.connected[peer, lane] = socket.socket(fileno=fd)

    def give_up(self, peer: int, why: str) -> None:
        self.lost[peer] = why

    def close(self) -> None:
        for connection in self.connected.values():
            connection.close()
        os.close(self.bell)


class Ranks:
    """Porters of all ranks of a job, whose rounds the test decides on."""

    def __init__(self, count: int, lanes: int = 1, shared: bool = False, patience: float = 20.0):
        doors = [[bind("127.0.0.1", 0)] for _ in range(count)]
        local = [bind_local() for _ in range(count)] if shared else []
        for rank, (door, _) in enumerate(local):
            doors[rank].append(door)
        near = {rank: name for rank, (_, name) in enumerate(local)}
        self.routes = Routes([[local_end(door[0])] for door in doors], near)
        self.engines = [Engine() for _ in range(count)]
        self.porters = [
            Porter(
                self.engines[rank],
                Membership(7, 0, rank, count, lanes, KEY),
                doors[rank],
                self.routes,
                patience,
            )
            for rank in range(count)
        ]

    def close(self) -> None:
        for porter, engine in zip(self.porters, self.engines, strict=True):
            porter.close()
            engine.close()

    def rounds(self, order: Iterator[int] | list[int]) -> None:
        for rank in order:
            self.porters[rank].serve(0)

    def until(self, *pairs: tuple[int, int]) -> None:
        """All take turns until these pairs of ranks are connected, on both ends."""
        deadline = time.monotonic() + LIMIT_S
        while not all(self.are_connected(a, b) for a, b in pairs):
            assert time.monotonic() < deadline
            self.rounds(range(len(self.porters)))

    def are_connected(self, a: int, b: int) -> bool:
        return (b, 0) in self.engines[a].connected and (a, 0) in self.engines[b].connected


@contextmanager
def ranks(count: int, **settings: bool | int | float) -> Iterator[Ranks]:
    with closing(Ranks(count, **settings)) as made:
        yield made


def check_joined(job: Ranks, a: int, b: int, lane: int = 0) -> None:
    """What one end says the other hears: it is one connection, and there is no other."""
    mine, theirs = job.engines[a].connected[b, lane], job.engines[b].connected[a, lane]
    mine.sendall(b"x")
    theirs.settimeout(LIMIT_S)
    assert theirs.recv(1) == b"x"
    assert not os.get_blocking(mine.fileno())
    assert not any(engine.twice or engine.lost for engine in job.engines)


@pytest.mark.parametrize("shared", [False, True])
def test_a_peer_that_is_asked_for_is_connected_on_every_lane(shared: bool) -> None:
    with ranks(3, lanes=2, shared=shared) as job:
        job.engines[2].ask(0)
        job.until((0, 2))
        job.rounds([0, 2] * 20)
        for lane in range(2):
            check_joined(job, 0, 2, lane)
            kind = socket.AF_UNIX if shared else socket.AF_INET
            assert job.engines[0].connected[2, lane].family == kind
        assert not job.engines[1].connected


@pytest.mark.parametrize("pattern", range(64))
def test_two_that_call_each_other_get_one_connection(pattern: int) -> None:
    """Both call, at any moment and with their turns in any order; nothing is connected twice."""
    with ranks(2) as job:
        turns = [pattern >> bit & 1 for bit in range(6)]
        first, second = turns[0], 1 - turns[0]
        job.engines[first].ask(second)
        job.rounds(turns[1:3])
        job.engines[second].ask(first)
        job.rounds(turns[3:])
        job.until((0, 1))
        job.rounds([0, 1] * 20)
        check_joined(job, 0, 1)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_all_that_call_all_at_once_are_connected_once(size: int) -> None:
    with ranks(size, shared=True) as job:
        for porter in job.porters:
            porter.start()
        for rank, engine in enumerate(job.engines):
            for peer in set(range(size)) - {rank}:
                engine.ask(peer)
        deadline = time.monotonic() + LIMIT_S
        while any(len(engine.connected) < size - 1 for engine in job.engines):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for porter in job.porters:
            porter.close()
        for a in range(size):
            for b in range(a):
                check_joined(job, a, b)


def test_the_higher_one_goes_on_where_the_lower_ones_call_comes_to_nothing() -> None:
    with ranks(2) as job:
        job.engines[0].ask(1)
        job.engines[1].ask(0)
        job.rounds([0])
        nowhere = [Address("127.0.0.1", 1)]
        job.porters[0]._routes = Routes([[], nowhere])  # Of what it begins from now on.
        job.porters[0]._caller.cancel((1, 0))
        job.until((0, 1))
        check_joined(job, 0, 1)


def ask_in_vain(job: Ranks) -> None:
    """Rank 0 alone gets on, until it has given rank 1 up."""
    job.engines[0].ask(1)
    started = time.monotonic()
    while not job.engines[0].lost:
        job.rounds([0])
        assert time.monotonic() - started < LIMIT_S


def test_who_listens_nowhere_is_lost_at_once() -> None:
    with ranks(2) as job:
        job.porters[1].close()
        ask_in_vain(job)
        assert "cannot be reached at 127.0.0.1" in job.engines[0].lost[1]
        assert "refused" in job.engines[0].lost[1]


def test_who_does_not_answer_is_lost_in_the_end() -> None:
    with ranks(2, patience=0.2) as job:
        ask_in_vain(job)
        assert "does not answer" in job.engines[0].lost[1]


def test_ranks_that_cannot_reach_a_neighbour_go_over_the_network(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a container shares the host's network, and may not connect to its sockets."""
    with ranks(2, shared=True) as job:
        job.porters[1]._routes = replace(job.routes, neighbours={0: LocalAddress("nobody")})
        job.engines[1].ask(0)
        job.until((0, 1))
        check_joined(job, 0, 1)
        assert job.engines[0].connected[1, 0].family == socket.AF_INET
    assert "rank 0 is on this host, but shares no memory with rank 1" in caplog.text


def test_crossed_calls_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), ranks(2) as job:
        for rank in (0, 1):
            job.engines[rank].ask(1 - rank)
        job.until((0, 1))
        job.rounds([0, 1] * 20)
    assert not caplog.records


class Reception:
    """Rank 0 of MEMBER, which lets in the other ranks in a thread of its own."""

    def __init__(self, patience: float) -> None:
        door = bind("127.0.0.1", 0)
        self.address = local_end(door)
        self.engine = Engine()
        self.porter = Porter(self.engine, MEMBER, [door], Routes([[]] * 3), patience)
        self.porter.start()

    @property
    def table(self) -> dict[Seat, socket.socket]:
        return self.engine.connected

    def connections(self, count: int) -> dict[Seat, socket.socket]:
        deadline = time.monotonic() + LIMIT_S
        while len(self.table) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return self.table

    def close(self) -> None:
        self.porter.close()
        self.engine.close()


@contextmanager
def reception(patience: float = LIMIT_S) -> Iterator[Reception]:
    with closing(Reception(patience)) as door:
        yield door


def member(rank: int, **changes: int | bytes) -> Membership:
    return replace(MEMBER, rank=rank, **changes)


def call(
    address: Address, who: Membership, lane: int = 0, peer: int = 0, role: Role = Role.PEER
) -> socket.socket:
    return dial("rank 0", address, who.hello(role, peer, lane), who.key, time.monotonic() + 3)


def arrive(address: Address) -> list[socket.socket]:
    """Connect every rank and lane that rank 0 waits for."""
    return [call(address, member(rank), lane) for rank in (1, 2) for lane in (0, 1)]


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ({"rank": 1, "key": bytes(32)}, Reason.WRONG_PROOF),
        ({"rank": 1, "job": 8}, Reason.WRONG_JOB),
        ({"rank": 1, "epoch": 1}, Reason.WRONG_JOB),
        ({"rank": 0}, Reason.WRONG_RANK),
        ({"rank": 3}, Reason.WRONG_RANK),
        ({"rank": 1, "world_size": 4}, Reason.WRONG_RANK),
    ],
)
def test_wrong_callers_are_refused(who: dict[str, int], reason: Reason) -> None:
    with reception() as door:
        with pytest.raises(AuthenticationError) as refused:
            call(door.address, replace(MEMBER, **who))
        assert isinstance(refused.value.__cause__, Refused)
        assert refused.value.__cause__.reason is reason
        assert not door.table


def test_wrong_place_is_refused() -> None:
    with reception() as door:
        for seat in ({"lane": 2}, {"peer": 1}, {"role": Role.WORKER}):
            with pytest.raises(AuthenticationError):
                call(door.address, member(1), **seat)


def test_a_rank_that_is_connected_is_not_connected_again() -> None:
    higher = replace(MEMBER, rank=2)
    guard = MeshGuard(higher, lambda seat: False)
    hello = member(1).hello(Role.PEER, 2, 0)
    guard.enter(hello, KEY)
    with pytest.raises(Refused) as refused:
        guard.enter(hello, KEY)
    assert refused.value.reason is Reason.DUPLICATE
    guard.leave(hello)
    guard.enter(hello, KEY)


def test_strangers_delay_nobody() -> None:
    """Silent, babbling and vanishing strangers are there first; all ranks get in all the same."""
    with reception() as door, contextlib.ExitStack() as strangers:
        for opening in (b"", b"x", b"GET / HTTP/1.1\r\n\r\n" * 9, b"spwr" + bytes(64)):
            for _ in range(8):
                stranger = strangers.enter_context(socket.create_connection(door.address, 3))
                stranger.sendall(opening)
        socket.create_connection(door.address, 3).close()
        for connection in arrive(door.address):
            strangers.enter_context(connection)
        assert sorted(door.connections(4)) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_stranger_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsewire.meeting.mesh.porter.PATIENCE_S", 0.1)
    with reception(0.1) as door, socket.create_connection(door.address, 3) as stranger:
        stranger.sendall(b"s")
        assert stranger.recv(1) == b""


def test_more_strangers_than_allowed_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be two for each lane of each rank: 12."""
    monkeypatch.setattr("sparsewire.meeting.mesh.porter.STRANGERS_MAX", 2)
    with reception() as door, contextlib.ExitStack() as strangers:
        crowd = [
            strangers.enter_context(socket.create_connection(door.address, 3)) for _ in range(16)
        ]
        for early in crowd[:4]:
            assert early.recv(1) == b""
        for connection in arrive(door.address):
            strangers.enter_context(connection)
        assert len(door.connections(4)) == 4


def guard() -> MeshGuard:
    return MeshGuard(MEMBER, lambda seat: False)


def test_caller_tries_again_until_the_listener_is_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = Address(*bound.getsockname())
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, address, member(1))
        with closing(Listener(partial(receive, guard()), bind(*address))) as listener:
            connections = []
            while not connections:
                connections = listener.poll(0.1)
            waiting.result(5).close()
            connections[0][0].close()


def test_caller_knows_a_listener_of_another_kind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, Address(*listener.getsockname()), member(1))
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.2" + bytes(200))
            with pytest.raises(ProtocolError, match="not a sparsewire listener"):
                waiting.result(5)


def test_hello_of_a_member() -> None:
    first, second = (member(1).hello(Role.PEER, 0, 1) for _ in range(2))
    assert isinstance(first, Hello)
    assert first.nonce != second.nonce
    assert name_ranks([4]) == "rank 4"
    assert name_ranks(list(range(20))).endswith("14, 15 and 4 more")


def test_lanes_take_turns_with_the_interfaces_of_both_ends() -> None:
    listeners = [[Address("10.0.0.2", 5), Address("10.0.1.2", 6)]]
    routes = Routes(listeners, {}, ["10.0.0.1", "10.0.1.1"])
    assert [routes.targets(0, lane) for lane in range(3)] == [
        [listeners[0][0]],
        [listeners[0][1]],
        [listeners[0][0]],
    ]
    assert [routes.source(lane) for lane in range(3)] == ["10.0.0.1", "10.0.1.1", "10.0.0.1"]
    assert Routes(listeners).source(1) == ""
