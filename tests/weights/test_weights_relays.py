"""Relays pass on what they get: as it comes, and also to who asks before they know of it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from arrays import LIMIT_S, assert_alike, copy, follow, weights
from hypothesis import given
from hypothesis import strategies as st
from support import until

from sparsewire.meeting.contact.sockets import bind
from sparsewire.options import Address
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.sync.chain import Entry
from sparsewire.weights.sync.channel import Channel
from sparsewire.weights.sync.fetch import Fetch
from sparsewire.weights.sync.server import Server
from sparsewire.weights.sync.shelf import Held, Shelf
from sparsewire.weights.sync.window import SendWindow, size_for

NOBODY = Address("127.0.0.1", 1)


def held(data: bytes | bytearray, *, is_whole: bool) -> Held:
    entry = Entry(1, None, b"", b"", len(data), b"")
    return Held(entry, memoryview(data), is_whole=is_whole)


def test_a_relay_that_hears_late_of_a_version_passes_it_on() -> None:
    data, found, failed = bytes(range(256)) * 1024, bytearray(256 * 1024), list[str]()

    async def main() -> int:
        shelf = Shelf()
        relay = Server(bind("127.0.0.1", 0), b"", shelf, None)
        wanted = held(found, is_whole=False)
        fetch = Fetch(wanted, NOBODY, b"", time.monotonic() + LIMIT_S, failed.append)
        fetching = asyncio.ensure_future(fetch.run([str(relay.address)]))
        await asyncio.sleep(0.1)
        shelf.put(held(data, is_whole=True))
        await fetching
        relay.close()
        return fetch.bytes_from_relays

    assert asyncio.run(main()) == len(data)
    assert found == data
    assert not failed


@contextmanager
def joined() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection; the first does not block."""
    with bind("127.0.0.1", 0) as door:
        far = socket.create_connection(door.getsockname())
        door.setblocking(True)
        near, _ = door.accept()
    with near, far:
        near.setblocking(False)
        yield near, far


def test_a_run_is_told_of_as_it_comes() -> None:
    data, told = bytes(range(250)) * 400, list[int]()

    async def main() -> None:
        with joined() as (near, far):
            target = memoryview(bytearray(len(data)))
            run = asyncio.ensure_future(Channel(near).receive_run(target, LIMIT_S, told.append))
            far.sendall(len(data).to_bytes(4, "big") + data[:50_000])
            await soon(lambda: told and told[-1] == 50_000)
            far.sendall(data[50_000:])
            assert await run == len(data)
            assert target == data

    asyncio.run(main())
    assert told == sorted(told)
    assert told[-1] == len(data)


def test_few_bytes_are_signs_of_life() -> None:
    told: list[int] = []

    async def main() -> None:
        with joined() as (near, far):
            target = memoryview(bytearray(10))
            run = asyncio.ensure_future(Channel(near).receive_run(target, 0.2, told.append))
            far.sendall(b"\0\0\0\x0a" + b"abc")
            await soon(lambda: told)
            with pytest.raises(asyncio.TimeoutError):
                await run
            assert bytes(target[:3]) == b"abc"

    asyncio.run(main())
    assert told == [3]


async def soon(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_window_grows_with_its_path_until_the_system_sizes_it() -> None:
    with joined() as (near, far):
        window = SendWindow(near)
        if window.size is None:
            pytest.skip("this system cannot be told to size a buffer again")
        least = window.size
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * least
        window.adapt()
        assert window.size == least
        sizes = [window.size]
        for _ in range(1000):
            near.send(bytes(least // 4))
            far.recv(least)
            window.adapt()
            sizes.append(window.size)
        assert sizes[-1] is None  # Loopback takes more than a process may set.
        known = [size for size in sizes if size is not None]
        assert known == sorted(known)
        window.adapt()


@given(st.floats(0, 1e10), st.floats(0, 1))
def test_a_window_holds_what_a_path_takes_in_two_round_trips(
    rate: float, round_trip: float
) -> None:
    assert size_for(rate, round_trip) >= int(2 * rate * round_trip)
    assert size_for(rate, round_trip) >= size_for(rate / 2, round_trip / 2)


@pytest.mark.parametrize("readers", [2, 5])
def test_relays_pass_it_on(publisher: Publisher, readers: int) -> None:
    """All wait when a version comes: its bytes leave the publisher once, and go on from there."""
    fresh = weights()
    publisher.publish(fresh)
    mine = [copy(fresh) for _ in range(readers)]
    receivers = [
        Receiver(publisher.address, own, relay="127.0.0.1:0", name=f"reader {number}")
        for number, own in enumerate(mine)
    ]
    for receiver in receivers:
        receiver.stage(timeout=LIMIT_S).apply()
    before = publisher.status()["bytes_sent"]
    fresh["large"][:] = np.random.default_rng(3).integers(0, 2**16, (1100, 1000))
    waiting = [threading.Thread(target=follow, args=[each]) for each in receivers]
    for thread in waiting:
        thread.start()
    until(
        lambda: [each["doing"] for each in publisher.status()["readers"]] == ["waiting"] * readers
    )
    nbytes = publisher.publish(fresh).nbytes
    for thread in waiting:
        thread.join(LIMIT_S)
    for own in mine:
        assert_alike(own, fresh)
    assert publisher.status()["bytes_sent"] - before == nbytes
    assert sum(each.status()["bytes_sent"] for each in receivers) == (readers - 1) * nbytes
    until(lambda: all(each["is_newest"] for each in publisher.status()["readers"]))
    for receiver in receivers:
        receiver.close()
    until(lambda: not publisher.status()["readers"])


def test_a_relay_that_is_gone_costs_no_version(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    relay = Receiver(publisher.address, relay="127.0.0.1:0")
    relay.stage(timeout=LIMIT_S).apply()
    address = relay.relay
    server = relay._subscriptions[0]._server
    assert server
    relay._loop.call(server.close)
    with Receiver(publisher.address) as receiver:
        staged = receiver.stage(timeout=LIMIT_S).apply()
        assert staged.way.nbytes_from_relays == 0
        until(lambda: publisher.status()["readers"][0]["relay"] != str(address))
    relay.close()
