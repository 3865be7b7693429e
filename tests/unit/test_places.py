"""Meeting places: every rank gets all records, who is missing is named, strangers harm nobody."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import serving

import sparsewire
from sparsewire.errors import AuthenticationError, Error, MismatchError, ProtocolError, Timeout
from sparsewire.meeting.connect import named_store, open_place
from sparsewire.meeting.contact import dial, listener, sockets, waiting
from sparsewire.meeting.contact.dial import converse
from sparsewire.meeting.contact.handshake import (
    Hello,
    Reason,
    Role,
    introduce,
    meeting_key,
    new_nonce,
)
from sparsewire.meeting.contact.listener import STRANGERS_MAX
from sparsewire.meeting.contact.sockets import receive_exactly
from sparsewire.meeting.places import doubts, guest, host, store_place, tcp_place, tcp_records
from sparsewire.meeting.places.place import Place, attended, split_records
from sparsewire.meeting.places.store_place import FileStore, StorePlace, next_use
from sparsewire.options import Address, Options

SECRET = b"sixteen bytes and more"

Opener: TypeAlias = "Callable[[Options, float], Place]"
"""Opens the place of one rank, which has so many seconds."""


def at(port: int, secret: bytes = b"") -> Opener:
    """Ranks that meet over TCP."""

    def open_one(options: Options, limit: float = 10) -> Place:
        address = Address("127.0.0.1", port)
        return tcp_place.tcp_place(address, secret, options, time.monotonic() + limit)

    return open_one


def in_files(directory: Path) -> Opener:
    return lambda options, limit: StorePlace(
        FileStore(directory), options, time.monotonic() + limit
    )


def in_torch(port: int) -> Opener:
    torch = pytest.importorskip("torch.distributed")

    def open_one(options: Options, limit: float) -> Place:
        is_host = options.rank == 0
        store = torch.TCPStore("127.0.0.1", port, None, is_host, wait_for_workers=False)
        return StorePlace(store, options, time.monotonic() + limit)

    return open_one


@pytest.fixture(params=["tcp", "files", "torch"])
def opener(request: pytest.FixtureRequest, tmp_path: Path, free_port: int) -> Opener:
    if request.param == "files":
        return in_files(tmp_path)
    return at(free_port) if request.param == "tcp" else in_torch(free_port)


def meet(
    open_one: Opener, ranks: list[int], world_size: int, rounds: int = 1, limit: float = 10
) -> list[list[list[bytes]] | Error]:
    """What `ranks`, in threads, get in each round, or the error of each."""

    def be(rank: int) -> list[list[bytes]] | Error:
        try:
            with closing(open_one(Options(rank, world_size), limit)) as place:
                return [
                    list(place.all_gather(f"rank {rank} in round {number}".encode() * rank))
                    for number in range(rounds)
                ]
        except Error as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(be, ranks))


def test_all_ranks_get_all_records_in_order(opener: Opener) -> None:
    expected = [
        [f"rank {rank} in round {number}".encode() * rank for rank in range(4)]
        for number in range(3)
    ]
    assert meet(opener, [0, 1, 2, 3], 4, rounds=3) == [expected] * 4


def test_all_name_the_ranks_that_do_not_come(opener: Opener) -> None:
    for error in meet(opener, [0, 2], 5, limit=1):
        assert isinstance(error, Timeout)
        assert str(error).startswith("ranks 1, 3, 4 did not show up")


def test_all_name_the_rank_that_is_missing_in_a_later_round(opener: Opener) -> None:
    given_up = threading.Barrier(4)

    def be(rank: int) -> Error | None:
        with closing(opener(Options(rank, 4), 1.5)) as place:
            list(place.all_gather(b"1"))
            try:
                if rank != 2:
                    list(place.all_gather(b"2"))
            except Error as error:
                return error
            finally:
                given_up.wait(20)
        return None

    with ThreadPoolExecutor(4) as pool:
        for error in [error for error in pool.map(be, range(4)) if error]:
            assert isinstance(error, Timeout)
            assert str(error).startswith("rank 2 did not show up")


def test_rank_0_is_through_last(tmp_path: Path) -> None:
    """It may host the store, so it stays until the slowest has read all."""
    finished: list[int] = []

    def be(rank: int) -> None:
        with closing(in_files(tmp_path)(Options(rank, 3), 10)) as place:
            for _ in place.all_gather(b"x"):
                time.sleep(0.1 * rank)
            finished.append(rank)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(be, range(3)))
    assert finished[-1] == 0


def test_rank_0_goes_on_though_a_rank_does_not_say_that_it_has_read(tmp_path: Path) -> None:
    """That rank may be slow, or gone: those that it has met find out."""
    FileStore(tmp_path).set("sparsewire/0/record 0/1", b"1")
    with closing(in_files(tmp_path)(Options(0, 2), 0.3)) as place:
        assert list(place.all_gather(b"0")) == [b"0", b"1"]


def test_a_rank_that_gives_up_ends_the_meeting_for_those_that_come_later(tmp_path: Path) -> None:
    (first,) = meet(in_files(tmp_path), [1], 3, limit=0.2)
    assert str(first).startswith("ranks 0, 2 did not show up")
    for error in meet(in_files(tmp_path), [0, 2], 3):
        assert isinstance(error, Timeout)
        assert "a rank gave up waiting" in str(error)


def test_rank_0_may_come_last(free_port: int) -> None:
    def late(options: Options, limit: float) -> Place:
        time.sleep(0.0 if options.rank else 0.3)
        return at(free_port)(options, limit)

    assert meet(late, [0, 1, 2], 3) == meet(at(free_port), [0, 1, 2], 3)


def test_rank_0_that_does_not_come(free_port: int) -> None:
    (error,) = meet(at(free_port), [1], 2, limit=0.2)
    assert isinstance(error, Timeout)
    assert f"rank 0 cannot be reached at 127.0.0.1:{free_port}" in str(error)
    assert "MASTER_ADDR and MASTER_PORT" in str(error)


def test_who_waits_for_less_time_ends_it_for_all(free_port: int) -> None:
    """So rank 0 can tell it who is missing before it leaves."""

    def patient(options: Options, _: float) -> Place:
        return at(free_port)(options, 0.5 if options.rank == 1 else 60)

    for error in meet(patient, [0, 1, 3], 4):
        assert isinstance(error, Timeout)
        assert str(error).startswith("rank 2 did not show up")


def test_port_in_use_is_named(free_port: int) -> None:
    message = f"rank 0 cannot listen on 127.0.0.1:{free_port}: .* another process with RANK=0"
    with closing(at(free_port)(Options(0, 2))), pytest.raises(Error, match=message):
        at(free_port)(Options(0, 2))


def test_a_rank_finds_out_that_it_is_not_rank_0() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=shout, args=(door,), daemon=True).start()
        (error,) = meet(at(door.getsockname()[1]), [1], 2)
        assert isinstance(error, ProtocolError)
        assert "not rank 0 of a sparsewire job" in str(error)


def test_what_listens_and_says_nothing_is_not_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """As web servers do, which wait for the end of a line: here nobody ever takes the call."""
    monkeypatch.setattr(dial, "_ATTEMPT_MAX_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as door:
        (error,) = meet(at(door.getsockname()[1]), [1], 2, limit=60)
    assert isinstance(error, ProtocolError)
    assert "not rank 0 of a sparsewire job (somebody listens there, but" in str(error)
    assert "MASTER_PORT" in str(error)


def test_a_web_server_is_not_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers where a nonce has the end of a line in it, and waits for one otherwise."""
    monkeypatch.setattr(dial, "_ATTEMPT_MAX_S", 0.2)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (error,) = meet(at(server.server_port), [1], 2, limit=60)
    finally:
        server.shutdown()
        server.server_close()
    assert isinstance(error, ProtocolError)
    assert "is not rank 0 of a sparsewire job" in str(error)


def test_an_aggregator_at_the_port_is_not_rank_0() -> None:
    with serving() as server:
        (error,) = meet(at(server.address.port), [1], 2, limit=60)
    assert isinstance(error, AuthenticationError)
    assert "serves another job" in str(error)


def test_why_rank_0_leaves_is_told_to_those_that_wait(free_port: int) -> None:
    def be_rank_0() -> None:
        with attended(at(free_port)(Options(0, 2), 60)) as place:
            list(place.all_gather(b"1"))
            raise ValueError("no such interface")

    def be_rank_1() -> Error:
        with closing(at(free_port)(Options(1, 2), 60)) as place:
            list(place.all_gather(b"1"))
            with pytest.raises(Error) as told:
                list(place.all_gather(b"2"))
            return told.value

    with ThreadPoolExecutor() as pool:
        first, second = pool.submit(be_rank_0), pool.submit(be_rank_1)
        assert str(second.result(20)) == "rank 0 could not start: ValueError: no such interface"
        with pytest.raises(ValueError, match="no such interface"):
            first.result(20)


@pytest.mark.parametrize("word", [b"", b"[]", b"[[", b"[" * 100_000, b'{"a": 1}', b"\xff", b"[1]"])
def test_a_last_word_that_is_none_is_an_error_all_the_same(word: bytes) -> None:
    assert isinstance(tcp_records.error_of(word), Error)


@pytest.mark.parametrize("kind", [AuthenticationError, MismatchError, Timeout, Error])
def test_a_last_word_is_the_same_error_at_the_other_end(kind: type[Error]) -> None:
    word = tcp_records.last_word(kind("why"))
    assert struct.unpack("!II", word[:8]) == (0, len(word) - 8)
    error = tcp_records.error_of(word[8:])
    assert (type(error), str(error)) == (kind, "why")


def shout(door: socket.socket) -> None:
    connection, _ = door.accept()
    with connection:
        connection.recv(64)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_the_place_asks_for_the_secret(free_port: int) -> None:
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port, SECRET), [0, 1], 3)
        for secret in (b"", bytes(16)):
            (error,) = meet(at(free_port, secret), [2], 3)
            assert isinstance(error, AuthenticationError)
            assert "SPARSEWIRE_SECRET" in str(error)
        assert meet(at(free_port, SECRET), [2], 3)[0] == pending.result(10)[0]


@pytest.mark.parametrize(
    ("of_rank_0", "of_rank_1"), [(SECRET, bytes(16)), (SECRET, b""), (b"", SECRET)]
)
def test_a_wrong_secret_is_told_at_both_ends_and_to_those_that_wait(
    of_rank_0: bytes,
    of_rank_1: bytes,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(doubts, "_GRACE_S", 1.0)
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port, of_rank_0), [0, 2], 3, 1, 60)
        call(free_port).close()
        (refused,) = meet(at(free_port, of_rank_1), [1], 3, limit=60)
        results = pending.result(20)
    for error in (refused, *results):
        assert isinstance(error, AuthenticationError)
        assert "SPARSEWIRE_SECRET" in str(error)
    for error in results:
        assert str(error).startswith("rank 1 at 127.0.0.1:")
        assert "has another SPARSEWIRE_SECRET than rank 0" in str(error)
    (warning,) = [text for text in warnings_in(caplog) if "SECRET" in text]
    assert warning.startswith("rank 1 at 127.0.0.1:")


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_stranger_that_names_a_rank_does_no_harm_where_that_one_comes(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it, or in time behind it."""
    monkeypatch.setattr(doubts, "_GRACE_S", 2.0)
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port, SECRET), [0, 1], 3, 1, 60)
        call(free_port).close()
        for rank in (1, 2):
            (error,) = meet(at(free_port), [rank], 3)
            assert isinstance(error, AuthenticationError)
        assert meet(at(free_port, SECRET), [2], 3, limit=60)[0] == pending.result(20)[0]


def test_doubts_end_a_start_only_where_nobody_comes_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(doubts.time, "monotonic", lambda: now[0])
    doubted = doubts.Doubts()
    assert doubted.left([1, 2]) == float("inf")
    assert doubted.error() is None
    doubted.note_refusal(1, "a:1")
    now[0] += 4.0
    doubted.note_arrival(2)
    assert doubted.left([1]) == 5.0
    assert doubted.left([1, 3]) == float("inf"), "rank 3 may just be late"
    doubted.note_refusal(1, "b:2")
    now[0] += 6.0
    assert doubted.left([1]) < 0
    assert "rank 1 at a:1 has another" in str(doubted.error())
    doubted.note_arrival(1)
    assert doubted.error() is None
    assert doubted.left([]) == float("inf")


def test_a_rank_that_is_there_twice_is_refused(
    free_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port), [0, 1], 3)
        time.sleep(0.5)
        (error,) = meet(at(free_port), [1], 3)
        assert isinstance(error, AuthenticationError)
        assert "another process has this rank already" in str(error)
        assert "start each rank once" in str(error)
        assert meet(at(free_port), [2], 3)[0] == pending.result(10)[0]
    (warning,) = [text for text in warnings_in(caplog) if "already" in text]
    assert re.match(r"rank 1 at \S+:\d+ is turned away, as rank 1 at \S+:\d+ is here", warning)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_there_twice_finds_out_in_a_store(rank: int, tmp_path: Path) -> None:
    for open_one in (in_files(tmp_path), in_hash_store()):
        with ThreadPoolExecutor() as pool, ExitStack() as places:
            first = places.enter_context(closing(open_one(Options(rank, 3), 20)))
            other = open_one(Options(rank, 3), 20)
            # No two records are equal.
            record = secrets.token_bytes(8)
            gathered = pool.submit(lambda place, r: list(place.all_gather(r)), first, record)
            while not first._store.check([f"{first._prefix}/record 0/{rank}"]):
                time.sleep(0.01)
            with pytest.raises(Error, match=f"another process has joined as rank {rank} where"):
                next(other.all_gather(b"second"))
            rest = [one for one in range(3) if one != rank]
            assert meet(open_one, rest, 3)[0] == [gathered.result(20)]


def test_what_a_process_left_in_a_store_is_no_other_process() -> None:
    """As where a process group is destroyed and made again, over a store that lived on."""
    open_one = in_hash_store()
    with closing(open_one(Options(0, 2), 0.05)) as left, pytest.raises(Timeout):
        list(left.all_gather(b"before"))
    with ThreadPoolExecutor() as pool:
        again = [open_one(Options(rank, 2), 20) for rank in (0, 1)]
        gathered = [pool.submit(lambda place: list(place.all_gather(b"now")), p) for p in again]
        assert [each.result(20) for each in gathered] == [[b"now", b"now"]] * 2


def in_hash_store() -> Opener:
    """All ranks use it for the first time."""
    store = pytest.importorskip("torch.distributed").HashStore()

    def open_one(options: Options, limit: float) -> Place:
        place = StorePlace(store, options, time.monotonic() + limit)
        place._prefix = "here"
        return place

    return open_one


def test_of_many_that_create_a_key_at_once_one_does(tmp_path: Path) -> None:
    stores = [FileStore(tmp_path) for _ in range(8)]
    for round_ in range(20):
        key = f"key {round_}"
        with ThreadPoolExecutor(8) as pool:
            values = [b"%d" % one for one in range(8)]
            found = list(pool.map(FileStore.compare_set, stores, 8 * [key], 8 * [""], values))
        assert set(found) == {stores[0].get(key)}
    assert len(list(tmp_path.iterdir())) == 20


def test_a_file_system_without_links_still_refuses_a_second_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    store = FileStore(tmp_path)
    assert store.compare_set("key", "", b"1") == b"1"
    assert store.compare_set("key", "", b"2") == b"1"
    assert len(list(tmp_path.iterdir())) == 1


def test_who_is_missing_is_logged_by_each_rank_as_far_as_it_knows(
    opener: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_S", 0.6)
    monkeypatch.setattr(waiting, "_AGAIN_S", 0.2)
    monkeypatch.setattr(store_place, "_ROLL_S", 0.05)
    with ThreadPoolExecutor() as pool:
        ranks = pool.submit(meet, opener, [0, 2], 5, 1, 60)
        texts: set[str] = set()
        while not {text[:6] for text in texts} >= {"rank 0", "rank 2"}:
            time.sleep(0.02)
            texts = {text for text in warnings_in(caplog) if "waits for" in text}
        late = pool.submit(meet, opener, [1, 3, 4], 5, 1, 60)
        assert late.result(20)[0] == ranks.result(20)[0]
    known, _ = sorted(texts)
    assert known.startswith("rank 0 of 5 waits for ranks 1, 3, 4 ")
    assert any(
        re.match(r"rank 2 of 5 waits for the other ranks.* the log of rank 0", text)
        for text in texts
    )
    told = len(warnings_in(caplog))
    time.sleep(0.5)
    assert len(warnings_in(caplog)) == told


@pytest.mark.parametrize("kind", ["tcp", "files"])
def test_rank_0_that_is_missing_is_logged(
    kind: str,
    tmp_path: Path,
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_S", 0.2)
    open_one = at(free_port) if kind == "tcp" else in_files(tmp_path)
    where = f"at 127.0.0.1:{free_port} (" if kind == "tcp" else f"in {tmp_path}"
    meet(open_one, [1], 2, limit=0.6)
    (text,) = warnings_in(caplog)
    assert text.startswith(f"rank 1 of 2 waits for rank 0 {where}")


def test_a_short_wait_is_not_logged(
    free_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(waiting, "_FIRST_S", 30.0)  # Ranks may be slow on a busy machine.
    for open_one in (at(free_port), in_files(tmp_path)):
        meet(open_one, [0, 1], 2, rounds=2)
    assert not warnings_in(caplog)
    assert not [one for one in threading.enumerate() if one.name == "sparsewire-waiting"]


def test_a_record_is_bounded(free_port: int) -> None:
    with closing(at(free_port)(Options(0, 2))) as rank_0:
        everything = rank_0.all_gather(bytes(tcp_records.RECORD_MAX + 1))
        with pytest.raises(ValueError, match="may have 65536 bytes"):
            list(everything)


@pytest.mark.parametrize(
    "words", [b"", struct.pack("!II", 1000, 100), struct.pack("!II", 1000, 2**31) + bytes(99)]
)
def test_those_that_send_no_record_hold_up_nobody(
    words: bytes, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers that prove themselves as ranks 1 and 2, and then have all the time of the world."""
    for module, name in (
        (listener, "PATIENCE_S"),
        (host, "_PATIENCE_S"),
        (guest, "_PATIENCE_S"),
    ):
        monkeypatch.setattr(module, name, 100.0)
    with ThreadPoolExecutor() as pool, ExitStack() as odd_ones:
        pending = pool.submit(meet, at(free_port), [0], 3)
        for rank in (1, 2, 2):
            odd = odd_ones.enter_context(closing(at(free_port)(Options(rank, 3))))
            odd_ones.enter_context(odd._dial()).sendall(words)
        assert meet(at(free_port), [1, 2], 3) == 2 * pending.result(10)


def test_a_rank_that_is_dropped_as_it_comes_in_comes_again(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where many more ranks come at once than are let in at a time."""
    receive, dropped = host._receive_newcomer, []

    def drop_first(*args: Any) -> Any:
        newcomer = yield from receive(*args)
        if not dropped:
            dropped.append(newcomer)
            raise ProtocolError("dropped")
        return newcomer

    monkeypatch.setattr(host, "_receive_newcomer", drop_first)
    records = [f"rank {rank} in round 0".encode() * rank for rank in range(3)]
    assert meet(at(free_port), [0, 1, 2], 3) == [[records]] * 3
    assert dropped


def test_strangers_take_no_place_of_a_rank(free_port: int) -> None:
    with contextlib.ExitStack() as strangers, ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port), [0, 1], 3)
        for number in range(2 * STRANGERS_MAX):
            stranger = strangers.enter_context(call(free_port))
            stranger.sendall(b"spwr" * (number % 3))
        assert meet(at(free_port), [2], 3)[0] == pending.result(10)[0]
        assert len(os.listdir("/proc/self/fd")) < 2 * STRANGERS_MAX + STRANGERS_MAX + 100


class Newcomer:
    """A rank that takes each step of its way in when it is told to."""

    def __init__(self, port: int, rank: int, world_size: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), 10)
        hello = Hello(Role.NEWCOMER, 0, 0, rank, 0, 0, world_size, new_nonce())
        self._handshake = introduce(hello, meeting_key(b""))
        self._reply, self._size = next(self._handshake)
        self._rank = rank

    def speak(self) -> None:
        self.connection.sendall(self._reply)

    def listen(self) -> None:
        self._reply, self._size = self._handshake.send(receive_exactly(self.connection, self._size))

    def bring_record(self) -> None:
        assert receive_exactly(self.connection, self._size) == bytes([Reason.ACCEPTED])
        self.connection.sendall(tcp_records.frame(b"%d" % self._rank, 60))

    def hear_records(self) -> list[bytes]:
        own = converse(self.connection, tcp_records.next_record())[1]
        return [own, *split_records(converse(self.connection, tcp_records.next_record(1 << 20))[1])]


def test_hundreds_that_come_at_once_are_let_in(free_port: int) -> None:
    """All have connected before the first says a word, and none has to come again."""
    count = 512
    sockets.raise_descriptor_limit(3 * count)
    with ThreadPoolExecutor() as pool, ExitStack() as connections:
        options = Options(0, count)
        rank_0 = connections.enter_context(closing(at(free_port)(options, 60)))
        gathered = pool.submit(lambda: list(rank_0.all_gather(b"0")))
        crowd = [Newcomer(free_port, rank, count) for rank in range(1, count)]
        for one in crowd:
            connections.enter_context(one.connection)
        for step in (Newcomer.speak, Newcomer.listen, Newcomer.speak, Newcomer.bring_record):
            for one in crowd:
                step(one)
        expected = [b"%d" % rank for rank in range(count)]
        assert all(one.hear_records() == expected for one in crowd)
        assert gathered.result(30) == expected


def test_strangers_at_rank_0_are_bounded_by_the_ranks_that_may_come(free_port: int) -> None:
    count = 100
    with closing(at(free_port)(Options(0, count), 60)) as rank_0, ExitStack() as connections:
        assert isinstance(rank_0, host.Host)
        crowd = [connections.enter_context(call(free_port)) for _ in range(2 * count + 20)]
        for _ in range(50):
            rank_0._listener.poll(0)
        for early in crowd[:20]:
            assert early.recv(1) == b""
        crowd[20].setblocking(False)
        with pytest.raises(BlockingIOError):
            crowd[20].recv(1)


def call(port: int) -> socket.socket:
    """A connection with rank 0, which may be about to listen."""
    for _ in range(200):
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), 5)
        time.sleep(0.02)
    raise AssertionError("rank 0 does not listen")


def test_garbage_leaves_the_place_alone(free_port: int) -> None:
    @settings(max_examples=30)
    @given(st.binary(max_size=200) | st.binary(max_size=64).map(b"spwr".__add__))
    def say(data: bytes) -> None:
        with call(free_port) as stranger:
            stranger.sendall(data)

    with ThreadPoolExecutor() as pool:
        pending = pool.submit(meet, at(free_port), [0, 1], 3, 1, 30)
        say()
        assert meet(at(free_port), [2], 3)[0] == pending.result(10)[0]


def test_rank_0_that_ends_is_told_at_once(free_port: int) -> None:
    with ThreadPoolExecutor() as pool, ExitStack() as ends:
        rank_0 = ends.enter_context(closing(at(free_port)(Options(0, 3), 60)))
        pending = pool.submit(meet, at(free_port), [1], 3, 1, 60)
        records = rank_0.all_gather(b"")
        assert [next(records), next(records)] == [b"", b"rank 1 in round 0"]
        rank_0.close()
        (error,) = pending.result(10)
        assert "lost the place where the ranks meet" in str(error)
        assert not isinstance(error, Timeout)


def test_a_rank_that_ends_between_rounds_is_told_at_once(free_port: int) -> None:
    def be(rank: int) -> str:
        with closing(at(free_port)(Options(rank, 3), 60)) as place:
            list(place.all_gather(b"1"))
            if rank != 1:
                with pytest.raises(Error) as left:
                    list(place.all_gather(b"2"))
                assert not isinstance(left.value, Timeout)
                return str(left.value)
        return ""

    with ThreadPoolExecutor(3) as pool:
        first, _, other = pool.map(be, range(3))
    assert first.startswith("rank 1 left before all ranks had met")
    assert other == first


def test_the_place_opens_again_for_the_next_meeting(free_port: int) -> None:
    first = meet(at(free_port), [0, 1, 2], 3)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", free_port), 5).close()
    assert meet(at(free_port), [0, 1, 2], 3) == first


def test_tcp_store_is_a_place_and_no_store(free_port: int) -> None:
    assert not hasattr(sparsewire.TcpStore, "set")
    with pytest.warns(DeprecationWarning, match="keeps no values any more"):
        store = sparsewire.TcpStore("127.0.0.1", free_port, True, secret=SECRET)

    def open_one(options: Options, limit: float) -> Place:
        return open_place(store, options, {}, time.monotonic() + limit)

    assert meet(open_one, [0, 1], 2) == meet(at(free_port, SECRET), [0, 1], 2)


def test_file_store(tmp_path: Path) -> None:
    store, other = FileStore(tmp_path, 10), FileStore(tmp_path, 10)
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(other.get, "a/../b")
        store.set("a/../b", b"\x00\xff")
        assert pending.result(10) == b"\x00\xff"
    assert store.check(["a/../b"])
    assert not store.check(["c"])
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_ranks_that_have_met_leave_one_record_in_the_directory(rounds: int, tmp_path: Path) -> None:
    """Rank 0's last one, for a rank too many."""
    found = meet(in_files(tmp_path), [0, 1, 2, 3], 4, rounds)
    assert found == [found[0]] * 4
    assert len(list(tmp_path.iterdir())) == 1


def test_ranks_that_have_met_leave_one_record_in_a_store_of_torch() -> None:
    store = pytest.importorskip("torch.distributed").HashStore()

    def open_one(options: Options, limit: float) -> Place:
        place = StorePlace(store, options, time.monotonic() + limit)
        place._prefix = "here"
        return place

    for _ in range(3):
        meet(open_one, [0, 1, 2], 3, rounds=2)
        assert store.num_keys() == 1
        assert store.check(["here/record 1/0"])


def test_a_store_that_cannot_forget_does_no_harm(tmp_path: Path) -> None:
    class Keeping(FileStore):
        def delete_key(self, key: str) -> bool:
            raise NotImplementedError(key)

    stores = [Keeping(tmp_path) for _ in range(3)]

    def open_one(options: Options, limit: float) -> Place:
        return StorePlace(stores[options.rank], options, time.monotonic() + limit)

    found = meet(open_one, [0, 1, 2], 3, rounds=2)
    assert found == [found[0]] * 3
    assert len(found[0]) == 2


def test_file_store_gives_up(tmp_path: Path) -> None:
    with pytest.raises(Timeout, match="missing did not appear"):
        FileStore(tmp_path, 0.05).get("missing")


def test_file_store_whose_directory_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    store = FileStore(directory, 60)
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(store.get, "key")
        directory.rmdir()
        with pytest.raises(Error, match=r"lost the place .* is gone"):
            pending.result(10)
    with pytest.raises(Error, match=r"lost the place .* is gone"):
        store.set("key", b"1")


def test_file_store_of_an_earlier_job_is_refused(tmp_path: Path) -> None:
    FileStore(tmp_path).set("key", b"1")
    with pytest.raises(Error, match="fresh directory"):
        FileStore(tmp_path).set("key", b"2")


def test_uses_are_counted_per_store(tmp_path: Path) -> None:
    first, second = FileStore(tmp_path), FileStore(tmp_path)
    assert [next_use(first), next_use(first), next_use(second)] == [0, 1, 0]


def test_environment_names_the_store(tmp_path: Path) -> None:
    environment = {"SPARSEWIRE_RENDEZVOUS": f"file://{tmp_path}/with%20space"}
    store = named_store(Options(0, 2), environment)
    assert isinstance(store, FileStore)
    assert (tmp_path / "with space").is_dir()
    assert named_store(Options(0, 2), environment) is store


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "SPARSEWIRE_RENDEZVOUS=file:///directory"),
        ({"MASTER_ADDR": "127.0.0.1"}, "MASTER_ADDR and MASTER_PORT"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x"}, "MASTER_ADDR and MASTER_PORT"),
        ({"SPARSEWIRE_RENDEZVOUS": "http://x/y"}, "not of the form file:///directory"),
        ({"SPARSEWIRE_RENDEZVOUS": "file://host/y"}, "not of the form file:///directory"),
    ],
)
def test_environment_that_names_no_place(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_place(None, Options(0, 2), environment, 0.0)


def test_import_leaves_torch_alone() -> None:
    code = "import sys, sparsewire; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
