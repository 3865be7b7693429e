"""Callers that lie to a publisher, send without end or take nothing: others are served."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import numpy as np
import pytest
from arrays import LIMIT_S, weights
from hostile import caller, resident_bytes
from support import until

from sparsewire.meeting.contact.dial import attempt
from sparsewire.meeting.contact.handshake import (
    ANY_PEER,
    Hello,
    Role,
    introduce,
    new_nonce,
    reader_key,
)
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.sync import channel as wire
from sparsewire.weights.sync import server
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.versions.coding import checksum

FILLING = b"x" * (64 << 10)


def served(publisher: Publisher) -> None:
    """Others are: a new reader gets the newest version."""
    with Receiver(publisher.address) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().version == publisher.version


REQUESTS: list[Document] = [
    {},
    {"op": "steal"},
    {"op": ["want"]},
    {"op": "join", "name": 3},
    {"op": "join", "name": "x" * 10_000},
    {"op": "join", "relay": "nowhere"},
    {"op": "join", "applied": 10**12},
    {"op": "tell", "applied": "3"},
    {"op": "want", "version": -1},
    {"op": "want", "have": "no hex"},
    {"op": "want", "have": "", "names": ["a"]},
    {"op": "get", "key": "x"},
    {"op": "get", "key": "000000000000", "begin": 5, "end": 1},
    {"op": "get", "key": "000000000000", "begin": 0, "end": 2**62},
    {"op": "status", "filling": "x" * 100_000},
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_requests_that_are_none(number: int) -> None:
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(weights())
        with caller(publisher.address) as ask, pytest.raises(ConnectionError):
            ask(REQUESTS[number])
        served(publisher)
        publisher.publish(weights(1))


def send_much(reader: socket.socket) -> None:
    """The head of a document that is too long, and the document."""
    reader.sendall(wire._HEAD.pack(64 << 20, 0))
    for _ in range(1024):
        reader.sendall(FILLING)


def test_callers_that_send_without_end() -> None:
    """Before the handshake and after it; the publisher holds little for each."""
    with Publisher("127.0.0.1:0") as publisher, contextlib.ExitStack() as callers:
        publisher.publish(weights())
        before = resident_bytes()
        for _ in range(20):
            stranger = socket.create_connection(publisher.address)
            callers.callback(stranger.close)
            with contextlib.suppress(OSError):
                stranger.sendall(b"x" * 10**6)
        for _ in range(20):
            hello = Hello(Role.READER, 0, 0, 0, ANY_PEER, 0, 0, new_nonce())
            reader = attempt(publisher.address, introduce(hello, reader_key(b"")), LIMIT_S)
            callers.callback(reader.close)
            with pytest.raises(OSError, match=r"reset|pipe"):
                send_much(reader)
        served(publisher)
        assert resident_bytes() - before < 64 << 20


def test_strangers_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may stand at the door at once; their places are free again soon."""
    monkeypatch.setattr(wire, "HANDSHAKE_S", 0.5)
    with Publisher("127.0.0.1:0") as publisher, contextlib.ExitStack() as strangers:
        publisher.publish(weights())
        for _ in range(server._STRANGERS_MAX + 20):
            stranger = socket.create_connection(publisher.address)
            strangers.callback(stranger.close)
        served(publisher)


def test_a_reader_that_takes_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for a message and stops: its connection ends, and the message may go."""
    monkeypatch.setattr(wire, "STUCK_S", 1)
    random = np.random.default_rng(0)
    with Publisher("127.0.0.1:0") as publisher, caller(publisher.address) as ask:
        publisher.publish({"w": random.integers(0, 2**16, 6_000_000, dtype=np.uint16)})
        message = publisher._chain.entries[0]
        ask({"op": "join"})
        ask({"op": "get", "key": message.key, "begin": 0, "end": message.size})
        served(publisher)
        until(lambda: len(publisher._server._tasks) == 1)


def test_a_message_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader says nothing meanwhile, for longer than one that has nothing to get may."""
    monkeypatch.setattr(server, "SILENCE_S", 0.2)
    random = np.random.default_rng(0)
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish({"w": random.integers(0, 2**16, 8_000_000, dtype=np.uint16)})
        message = publisher._chain.entries[0]
        memory = memoryview(bytearray(message.size))

        async def get() -> None:
            channel = await Channel.dial(publisher.address, b"", LIMIT_S)
            with contextlib.closing(channel):
                request = {"op": "get", "key": message.key, "begin": 0, "end": message.size}
                await channel.send(request)
                await channel.receive(LIMIT_S)
                await asyncio.sleep(1)
                begin = 0
                while begin < message.size:
                    begin += await channel.receive_run(memory[begin:], LIMIT_S, ignored)

        asyncio.run(get())
        assert checksum(memory[:-16]) == message.checksum


def ignored(_: int) -> None:
    pass


def test_readers_that_come_and_go_leave_nothing() -> None:
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(weights())
        for _ in range(5):
            with caller(publisher.address) as ask:
                ask({"op": "join", "relay": "127.0.0.1:9"})
                names = ask({"op": "want", "have": "", "names": ""})
                for _ in range(5):
                    ask({"op": "want", "have": "", "names": names["digest"]})
        until(lambda: not publisher.status()["readers"])
        assert not any(publisher._desk._groups.values())
