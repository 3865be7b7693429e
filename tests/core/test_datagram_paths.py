"""Datagrams whose path changes in the middle of a job: a NAT that forgets ports of ranks; and what
hosts without rights are granted."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from support import run_ranks, serving

import sparsewire
from sparsewire.meeting.aggregators.datagram_log import BUFFER_WANTED, DatagramLog
from sparsewire.options import Address

ELEMENTS = 2_000_000
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Ends = tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]


class Nat(asyncio.DatagramProtocol):
    """Carries connections and datagrams to an aggregator, and gives every rank a new source port
    each time that so many datagrams have come."""

    def __init__(self, target: Address, every: int) -> None:
        self._target, self._every = target, every
        self._ways: dict[Address, asyncio.Task[Ends]] = {}
        self._sent: set[asyncio.Task[None]] = set()
        self._count = 0
        self.moves = 0

    async def start(self) -> Address:
        loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        own = self._server.sockets[0].getsockname()
        self._below, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=own)
        return Address(*own)

    async def _carry(self, reader: Reader, writer: Writer) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    def datagram_received(self, data: bytes, sender: tuple[str, int]) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self.moves += 1
            for way in self._ways.values():
                way.add_done_callback(lambda done: done.result()[0].close())
            self._ways.clear()
        sending = asyncio.ensure_future(self._send_up(data, Address(*sender)))
        self._sent.add(sending)
        sending.add_done_callback(self._sent.discard)

    async def _send_up(self, data: bytes, sender: Address) -> None:
        if sender not in self._ways:
            self._ways[sender] = asyncio.ensure_future(self._open(sender))
        (await self._ways[sender])[0].sendto(data)

    async def _open(self, sender: Address) -> Ends:
        loop = asyncio.get_running_loop()
        return await loop.create_datagram_endpoint(
            lambda: _Back(self._below, sender), remote_addr=tuple(self._target)
        )


class _Back(asyncio.DatagramProtocol):
    """What comes back for one rank."""

    def __init__(self, below: asyncio.DatagramTransport, rank: Address) -> None:
        self._below, self._rank = below, rank

    def datagram_received(self, data: bytes, _: tuple[str, int]) -> None:
        self._below.sendto(data, tuple(self._rank))


async def _pump(reader: Reader, writer: Writer) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@contextmanager
def nat(target: Address, every: int) -> Iterator[tuple[Nat, Address]]:
    """One in a thread of its own, and where it is reached."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    way = Nat(target, every)
    address = asyncio.run_coroutine_threadsafe(way.start(), loop).result(20)
    try:
        yield way, address
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)


def sum_through_the_nat() -> bool:
    with sparsewire.init(timeout=100) as comm:
        base = np.arange(ELEMENTS) % 1000
        x = (base + comm.rank).astype(np.float32)
        comm.all_reduce(x)
        n = comm.world_size
        return bool(np.array_equal(x, n * base + n * (n - 1) / 2))


@pytest.mark.timeout(150)
def test_ranks_whose_ports_change_in_an_operation_go_on() -> None:
    with (
        serving(transport="udp") as server,
        nat(server.address, every=500) as (way, address),
    ):
        environment = {"SPARSEWIRE_AGGREGATORS": str(address), "SPARSEWIRE_TRANSPORT": "udp"}
        done = run_ranks(2, sum_through_the_nat, environment=environment, deadline_s=120)
        assert done == [True, True]
        assert way.moves >= 2


WITHOUT_RIGHTS = """
import json, socket
from sparsewire._core import Aggregator
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(("127.0.0.1", 0))
bound.setblocking(False)
one = Aggregator(memory=1, job_memory=1, window=1, grace=1.0, datagrams=bound.detach())
print(json.dumps(one.stats()["datagram_buffer"]))
one.close()
"""


def granted_without_rights() -> int:
    with open("/proc/sys/net/core/rmem_max") as file:
        return int(file.read())


@pytest.mark.timeout(60)
@pytest.mark.skipif(granted_without_rights() >= BUFFER_WANTED, reason="rmem_max is large here")
def test_a_receive_buffer_that_the_system_refuses_is_shown() -> None:
    argv = ["setpriv", "--bounding-set", "-net_admin", sys.executable, "-c", WITHOUT_RIGHTS]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=True).stdout
    assert json.loads(told) == granted_without_rights()


def test_troubles_of_datagrams_are_told_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    log = DatagramLog()
    quiet = {"datagram_buffer": BUFFER_WANTED, "datagram_errors": 0, "datagrams_overrun": 0}
    log.look(quiet)
    assert not caplog.records
    loud = {"datagram_errors": 3, "datagram_last_error": 90, "datagrams_overrun": 5}
    for _ in range(3):
        log.look({**quiet, **loud, "datagram_buffer": 212_992})
    assert len(caplog.records) == 3
    for word in ("net.core.rmem_max to 4194304", "Message too long", "MTU"):
        assert word in caplog.text
