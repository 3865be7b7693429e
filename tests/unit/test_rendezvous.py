"""The stores: what one rank sets all get, and hostile clients harm nobody."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsewire.errors import AuthenticationError, Error, ProtocolError, Timeout
from sparsewire.meeting import tcp_store
from sparsewire.meeting.listener import STRANGERS_MAX
from sparsewire.meeting.rendezvous import FileStore, default_store, next_use
from sparsewire.meeting.tcp_store import TcpStore
from sparsewire.options import Options

SECRET = b"sixteen bytes and more"


@pytest.fixture
def server() -> Iterator[TcpStore]:
    with closing(TcpStore("127.0.0.1", 0, is_server=True, timeout=10)) as store:
        yield store


def client(server: TcpStore, timeout: float = 10) -> TcpStore:
    return TcpStore(*server.address, is_server=False, timeout=timeout)


def test_tcp_store_shares_values(server: TcpStore) -> None:
    with closing(client(server)) as other:
        server.set("a/b", b"\x00\xff")
        assert other.get("a/b") == b"\x00\xff"
        assert other.check(["a/b"])
        assert not other.check(["a/b", "c"])


def test_tcp_store_waits_for_a_value(server: TcpStore) -> None:
    with closing(client(server)) as other, ThreadPoolExecutor() as pool:
        waiting = pool.submit(other.get, "late")
        server.set("late", b"1")
        assert waiting.result(10) == b"1"


def test_tcp_store_gives_up(server: TcpStore) -> None:
    with closing(client(server, timeout=0.1)) as other:
        with pytest.raises(Timeout, match="nobody wrote 'missing'"):
            other.get("missing")
        server.set("there", b"1")
        assert other.get("there") == b"1"


def test_tcp_store_keys_are_written_once(server: TcpStore) -> None:
    server.set("key", b"1")
    with pytest.raises(Error, match="MASTER_PORT of its own"):
        server.set("key", b"2")
    assert server.get("key") == b"1"


def test_tcp_store_bounds(server: TcpStore) -> None:
    with pytest.raises(ValueError, match="bytes"):
        server.set("key", bytes(tcp_store.VALUE_MAX + 1))
    with pytest.raises(ValueError, match="bytes"):
        server.get("k" * (tcp_store.KEY_MAX + 1))


def test_tcp_store_server_may_come_later() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ThreadPoolExecutor() as pool, closing(TcpStore("127.0.0.1", port, False, 10)) as early:
        waiting = pool.submit(early.get, "key")
        with closing(TcpStore("127.0.0.1", port, True, 10)) as late:
            late.set("key", b"1")
            assert waiting.result(10) == b"1"


def test_tcp_store_unreachable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        lost = TcpStore("127.0.0.1", probe.getsockname()[1], False, timeout=0.1)
        with pytest.raises(Timeout, match="MASTER_ADDR and MASTER_PORT"):
            lost.get("key")


def test_port_in_use_is_named(server: TcpStore) -> None:
    with pytest.raises(Error, match=f"cannot listen on {server.address}"):
        TcpStore(*server.address, is_server=True)


def test_client_finds_out_that_it_is_no_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=shout, args=(listener,), daemon=True).start()
        stray = TcpStore(*listener.getsockname(), is_server=False, timeout=5)
        with closing(stray), pytest.raises(ProtocolError, match="not a sparsewire store"):
            stray.get("key")


def shout(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(64)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_tcp_store_asks_for_the_secret() -> None:
    with closing(TcpStore("127.0.0.1", 0, True, 10, secret=SECRET)) as server:
        server.set("key", b"1")
        with closing(TcpStore(*server.address, False, 10, secret=SECRET)) as member:
            assert member.get("key") == b"1"
        for secret in (b"", bytes(16)):
            stranger = TcpStore(*server.address, False, 10, secret=secret)
            with closing(stranger), pytest.raises(AuthenticationError, match="SPARSEWIRE_SECRET"):
                stranger.get("key")


def test_a_client_cannot_fill_the_store(server: TcpStore) -> None:
    full = [f"{number}" for number in range(tcp_store.CLIENT_BYTES_MAX // 60_000 + 1)]
    with closing(client(server)) as greedy:
        for key in full[:-1]:
            greedy.set(key, bytes(60_000))
        with pytest.raises(Error, match="full"):
            greedy.set(full[-1], bytes(60_000))
    with closing(client(server)) as modest:
        modest.set("key", b"1")
        assert server.get("key") == b"1"


def test_strangers_take_no_place_of_a_client(server: TcpStore) -> None:
    with contextlib.ExitStack() as strangers, closing(client(server)) as member:
        for number in range(2 * STRANGERS_MAX):
            stranger = strangers.enter_context(socket.create_connection(server.address, 5))
            stranger.sendall(b"spwr" * (number % 3))
        member.set("key", b"1")
        assert server.get("key") == b"1"
        descriptors = len(os.listdir("/proc/self/fd"))
        assert descriptors < 2 * STRANGERS_MAX + STRANGERS_MAX + 100


def test_a_lost_server_is_told_at_once(server: TcpStore) -> None:
    with closing(client(server, timeout=60)) as other, ThreadPoolExecutor() as pool:
        assert not other.check(["key"])
        waiting = pool.submit(other.get, "key")
        time.sleep(0.1)
        server.close()
        with pytest.raises(Error, match="lost the store") as lost:
            waiting.result(10)
        assert not isinstance(lost.value, Timeout)


def test_a_store_that_was_left_opens_again_empty(server: TcpStore) -> None:
    with closing(client(server)) as other, ThreadPoolExecutor() as pool:
        for round_trip in (b"1", b"2"):
            server.set("key", round_trip)
            assert other.get("key") == round_trip
            leaving = pool.submit(other.leave)
            time.sleep(0.05)
            assert not leaving.done(), "rank 0 closes first"
            server.leave()
            leaving.result(10)
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(server.address, 5).close()


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.binary(max_size=64).map(b"spwr".__add__))
def test_garbage_leaves_the_store_alone(data: bytes) -> None:
    with (
        closing(TcpStore("127.0.0.1", 0, is_server=True, timeout=10)) as store,
        socket.create_connection(store.address, 5) as stranger,
    ):
        stranger.sendall(data)
        store.set("key", b"1")
        assert store.get("key") == b"1"


def test_file_store(tmp_path: Path) -> None:
    store, other = FileStore(tmp_path, 10), FileStore(tmp_path, 10)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(other.get, "a/../b")
        store.set("a/../b", b"\x00\xff")
        assert waiting.result(10) == b"\x00\xff"
    assert store.check(["a/../b"])
    assert not store.check(["c"])
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


def test_file_store_gives_up(tmp_path: Path) -> None:
    with pytest.raises(Timeout, match="missing did not appear"):
        FileStore(tmp_path, 0.05).get("missing")


def test_file_store_whose_directory_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    store = FileStore(directory, 60)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.get, "key")
        directory.rmdir()
        with pytest.raises(Error, match=r"lost the store .* is gone"):
            waiting.result(10)
    with pytest.raises(Error, match=r"lost the store .* is gone"):
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
    store = default_store(Options(0, 2), environment)
    assert isinstance(store, FileStore)
    assert (tmp_path / "with space").is_dir()
    assert default_store(Options(0, 2), environment) is store


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
def test_environment_that_names_no_store(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        default_store(Options(0, 2), environment)


def test_import_leaves_torch_alone() -> None:
    code = "import sys, sparsewire; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
