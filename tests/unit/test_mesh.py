"""Ranks that connect over real sockets, with strangers at the door."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError, Timeout
from sparsewire.meeting import listener as listening
from sparsewire.meeting import mesh, startup
from sparsewire.meeting.handshake import Hello, Reason, Refused, Role, receive
from sparsewire.meeting.listener import Listener
from sparsewire.meeting.mesh import Channels, MemberGuard, Membership, attempt, connect_ranks, dial
from sparsewire.meeting.sockets import LocalAddress, bind, local_end
from sparsewire.meeting.store_place import FileStore, StorePlace
from sparsewire.meeting.tcp_place import tcp_place
from sparsewire.options import Address, Options

KEY = bytes(range(32))
MEMBER = Membership(job=7, epoch=0, rank=0, world_size=3, lanes=2, key=KEY)


def join_all(where: Path | Address, *options: Options, late: int | None = None):
    """Join as every rank at once, in threads; returns channels or errors, by rank."""
    deadline = time.monotonic() + 2

    def join(one: Options) -> Channels | Exception:
        time.sleep(0.5 if one.rank == late else 0)
        try:
            if isinstance(where, Path):
                place = StorePlace(FileStore(where), one, deadline)
            else:
                place = tcp_place(where, b"", one, deadline)
            with closing(place):
                return startup.connect(one, place, {}, deadline).channels
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(options)) as pool:
        return list(pool.map(join, options))


@contextmanager
def opened(of_ranks: list[Channels]) -> Iterator[list[list[list[socket.socket]]]]:
    """The channels as sockets, closed at the end."""
    sockets = [
        [[socket.socket(fileno=fd) if fd >= 0 else None for fd in lane] for lane in channels]
        for channels in of_ranks
    ]
    try:
        yield sockets
    finally:
        for one in (one for channels in sockets for lane in channels for one in lane if one):
            one.close()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("world_size", "lanes"), [(2, 1), (4, 2)])
def test_every_lane_connects_its_two_ranks(
    tmp_path: Path, world_size: int, lanes: int, shared: bool
) -> None:
    ranks = [Options(r, world_size, lanes=lanes, shared_memory=shared) for r in range(world_size)]
    results = join_all(tmp_path, *ranks)
    with opened(results) as channels:
        for rank in range(world_size):
            for lane in range(lanes):
                assert channels[rank][lane][rank] is None
                for peer in set(range(world_size)) - {rank}:
                    mine, theirs = channels[rank][lane][peer], channels[peer][lane][rank]
                    assert mine.getpeername() == theirs.getsockname()
                    assert not os.get_blocking(mine.fileno())
                    if shared:
                        assert mine.family == socket.AF_UNIX
                    else:
                        assert mine.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_ranks_that_cannot_reach_a_neighbour_go_over_the_network(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a container shares the host's network, and may not connect to its sockets."""
    with patch("sparsewire.meeting.mesh.attempt", refuse_local):
        results = join_all(tmp_path, Options(0, 2), Options(1, 2))
    with opened(results) as channels:
        assert channels[0][0][1].family == socket.AF_INET
    assert "rank 0 is on this host, but shares no memory with rank 1" in caplog.text


def refuse_local(address: Address | LocalAddress, *arguments: object) -> socket.socket:
    if isinstance(address, LocalAddress):
        raise ConnectionRefusedError("not from here")
    return attempt(address, *arguments)


def test_settings_that_differ_are_named_on_every_rank(tmp_path: Path) -> None:
    results = join_all(tmp_path, Options(0, 3), Options(1, 3), Options(2, 3, lanes=2))
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        other = "2 on rank 2" if rank < 2 else "1 on rank 0"
        assert "ranks disagree on lanes" in str(error)
        assert other in str(error)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3)])
@pytest.mark.parametrize("kind", ["files", "tcp"])
def test_world_sizes_that_differ_are_named_before_the_time_is_over(
    kind: str, sizes: tuple[int, ...], tmp_path: Path, free_port: int
) -> None:
    where = tmp_path if kind == "files" else Address("127.0.0.1", free_port)
    results = join_all(where, *(Options(rank, size) for rank, size in enumerate(sizes)))
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        assert f"world size: {sizes[rank]} on rank {rank}, {sizes[1 - rank]} on" in str(error)


@pytest.mark.parametrize("sizes", [(3, 4, 3), (3, 3, 4), (3, 2, 3), (4, 3, 3)])
@pytest.mark.parametrize("late", [1, 2])
def test_one_wrong_world_size_is_named_on_all_ranks(
    sizes: tuple[int, ...], late: int, free_port: int
) -> None:
    ranks = [Options(rank, size) for rank, size in enumerate(sizes)]
    results = join_all(Address("127.0.0.1", free_port), *ranks, late=late)
    for rank, error in enumerate(results):
        assert isinstance(error, MismatchError)
        assert f"world size: {sizes[rank]} on rank {rank}" in str(error)


def test_a_rank_too_many_is_told_so(tmp_path: Path) -> None:
    """The others are all that they expect, and meet."""
    *channels, error = join_all(tmp_path, Options(0, 2), Options(1, 2), Options(2, 4))
    with opened(channels):
        assert isinstance(error, MismatchError)
        assert "world size: 4 on rank 2, 2 on rank 0" in str(error)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    (error,) = join_all(tmp_path, Options(0, 4))
    assert isinstance(error, Timeout)
    assert "ranks 1, 2, 3 did not show up" in str(error)


def test_secrets_that_differ_are_refused(tmp_path: Path) -> None:
    results = join_all(
        tmp_path, Options(0, 2, timeout=2), Options(1, 2, secret=bytes(16), timeout=2)
    )
    assert isinstance(results[1], AuthenticationError)
    assert "rank 0 at a socket of this host" in str(results[1])
    assert isinstance(results[0], Timeout)
    assert "rank 1 did not connect" in str(results[0])


def test_loopback_is_refused_between_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["first host", "second host"])
    monkeypatch.setattr(startup, "host_identity", lambda: next(names))
    for error in join_all(tmp_path, Options(0, 2), Options(1, 2)):
        assert isinstance(error, Error)
        assert "rank 0 listens on 127.0.0.1" in str(error)
        assert "set SPARSEWIRE_IFNAME" in str(error)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"port": "x"}', b'{"unknown": 1}']
)
def test_wrong_record_in_the_store(tmp_path: Path, value: bytes) -> None:
    FileStore(tmp_path).set("sparsewire/0/record 0/0", value)
    (error,) = join_all(tmp_path, Options(1, 2))
    assert isinstance(error, ProtocolError)


class Reception:
    """Rank 0 of MEMBER, which lets in the higher ranks in a thread of its own."""

    def __init__(self, pool: ThreadPoolExecutor, limit: float) -> None:
        door = bind("127.0.0.1", 0)
        self.address = local_end(door)
        self.table: dict[tuple[int, int], socket.socket] = {}
        deadline = time.monotonic() + limit
        self.done = pool.submit(mesh.receive_ranks, MEMBER, [door], self.table, deadline)

    def connections(self) -> dict[tuple[int, int], socket.socket]:
        self.done.result(5)
        return self.table


@contextmanager
def reception(limit: float = 10.0) -> Iterator[Reception]:
    with ThreadPoolExecutor() as pool:
        door = Reception(pool, limit)
        yield door
        if not door.done.done():
            arrive(door.address)
            door.done.result(5)
        for connection in door.table.values():
            connection.close()


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
        for place in ({"lane": 2}, {"peer": 1}, {"role": Role.WORKER}):
            with pytest.raises(AuthenticationError):
                call(door.address, member(1), **place)


def test_second_connection_of_a_lane_replaces_the_first() -> None:
    """As of a caller whose first attempt took too long, so that it knows nothing of its success."""
    with reception() as door, contextlib.ExitStack() as callers:
        given_up = callers.enter_context(call(door.address, member(1)))
        connected = [callers.enter_context(one) for one in arrive(door.address)]
        assert given_up.recv(1) == b""
        door.connections()[1, 0].sendall(b"x")
        assert connected[0].recv(1) == b"x"


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
        assert sorted(door.connections()) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_stranger_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PATIENCE_S", 0.1)
    with reception() as door, socket.create_connection(door.address, 3) as stranger:
        stranger.sendall(b"s")
        assert stranger.recv(1) == b""


def test_more_strangers_than_allowed_push_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "STRANGERS_MAX", 2)
    with reception() as door, contextlib.ExitStack() as strangers:
        crowd = [
            strangers.enter_context(socket.create_connection(door.address, 3)) for _ in range(5)
        ]
        for early in crowd[:3]:
            assert early.recv(1) == b""
        for connection in arrive(door.address):
            strangers.enter_context(connection)
        assert len(door.connections()) == 4


def test_missing_callers_are_named() -> None:
    with reception(limit=0.5) as door:
        both = [call(door.address, member(1), lane) for lane in (0, 1)]
        with pytest.raises(Timeout, match="rank 2 did not connect to rank 0"):
            door.connections()
        for connection in both:
            connection.close()


def test_failed_mesh_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    silent = member(2)
    with closing(Listener(partial(receive, MemberGuard(MEMBER)), bind("127.0.0.1", 0))) as first:
        stop = threading.Event()
        serving = threading.Thread(target=serve_until, args=(first, stop))
        serving.start()
        with bind("127.0.0.1", 0) as door, socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            addresses = [first.address, Address(*nobody.getsockname())]
            with pytest.raises(
                Timeout,
                match=r"rank 1 cannot be reached at .* wait for another rank",
            ):
                connect_ranks(silent, [door], addresses, time.monotonic() + 0.3)
        stop.set()
        serving.join()
    assert len(os.listdir("/proc/self/fd")) == before


def serve_until(listener: Listener, stop: threading.Event) -> None:
    while not stop.is_set():
        for connection, _ in listener.poll(0.05):
            connection.close()


def test_caller_tries_again_until_the_listener_is_there() -> None:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        address = Address(*place.getsockname())
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, address, member(1))
        with closing(Listener(partial(receive, MemberGuard(MEMBER)), bind(*address))) as listener:
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
    assert mesh.name_ranks([4]) == "rank 4"
    assert mesh.name_ranks(list(range(20))).endswith("14, 15 and 4 more")
