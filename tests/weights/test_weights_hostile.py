"""Publishers, relays and readers that lie: errors say so, memory is bounded, others are served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import Any

import numpy as np
import pytest
from hostile import caller, publisher_that, resident_bytes, saying
from support import until
from test_weights_sync import LIMIT_S, weights

from sparsewire.errors import Error, MismatchError, ProtocolError, ResourceError, Timeout
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
from sparsewire.weights.sync import follow as following
from sparsewire.weights.sync.channel import Channel, Document

SUM = "ab" * 16
FILLING = b"x" * (64 << 10)


def plan(**others: Any) -> Document:
    return {
        "chain": "one",
        "version": 3,
        "made": SUM,
        "whole_nbytes": 9,
        "entries": [],
        "relays": [None],
        **others,
    }


def entry(**others: Any) -> Document:
    return {
        "version": 3,
        "base": None,
        "had": "",
        "made": SUM,
        "size": 100,
        "checksum": SUM,
        **others,
    }


NONSENSE: dict[str, Document] = {
    "nothing": {},
    "no names": {"names": 3},
    "names of no text": {"names": [[1]], "digest": "x"},
    "no entries": plan(entries=3),
    "entries of nothing": plan(entries=[None]),
    "no relays": plan(relays=[]),
    "a negative version": plan(version=-1),
    "a version that is none": plan(version=True),
    "a size that is none": plan(entries=[entry(size="9")]),
    "a short fingerprint": plan(made="ab"),
    "another version at its end": plan(entries=[entry(version=2)]),
    "versions that fall": plan(entries=[entry(version=4), entry(base=4, had=SUM)]),
    "no message": plan(entries=[entry(size=0)]),
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_answers_that_are_none(kind: str) -> None:
    with publisher_that(saying(NONSENSE[kind])) as address, Receiver(address) as receiver:
        with pytest.raises(ProtocolError):
            receiver.stage(timeout=LIMIT_S)
        assert receiver.version is None


@pytest.mark.parametrize("raw", [b"[" * 100_000, b"9" * 10_000, b"[]", b'{"a":', b"\xff"])
def test_documents_that_are_none(raw: bytes) -> None:
    async def answer(channel: Channel, _: Document) -> None:
        await channel._send(wire.framed(raw))

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(ProtocolError, match="no document"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_a_document_that_was_damaged_on_the_way() -> None:
    """A version whose number is another one would be taken for it ever after."""

    async def answer(channel: Channel, _: Document) -> None:
        raw = bytearray(wire.framed(b'{"chain": "one", "version": 3}'))
        raw[-2] ^= 1
        await channel._send(raw)

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(ProtocolError, match="damaged"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_a_document_that_is_too_long() -> None:
    async def answer(channel: Channel, _: Document) -> None:
        await channel._send(struct.pack("!II", 2**32 - 1, 0))

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(ProtocolError, match="too long"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_a_message_beyond_all_memory() -> None:
    answer = saying(plan(entries=[entry(size=2**61)]))
    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(ResourceError, match="no memory"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_a_plan_without_end() -> None:
    """Of as many messages as it likes: none comes, and nothing is held for them."""
    many = [entry(version=number, base=number - 1, size=2**30) for number in range(1, 1001)]
    last = entry(version=1001, base=1000, size=2**30)
    before = resident_bytes()
    with (
        publisher_that(saying(plan(version=1001, entries=[*many, last]))) as address,
        Receiver(address) as receiver,
        pytest.raises(Error),
    ):
        receiver.stage(timeout=1)
    assert resident_bytes() - before < 64 << 20


@pytest.mark.parametrize(
    "answer", [{"alive": True}, {"names": ["a"], "digest": "b"}], ids=["alive", "names"]
)
def test_answers_without_end(answer: Document) -> None:
    async def flood(channel: Channel, _: Document) -> None:
        while True:
            await channel.send(answer)

    with (
        publisher_that(flood) as address,
        Receiver(address) as receiver,
        pytest.raises(Timeout),
    ):
        receiver.stage(timeout=0.5)


def test_a_million_names() -> None:
    names = [f"layer.{number}" for number in range(1_000_000)]
    before = resident_bytes()
    with (
        publisher_that(saying({"names": names, "digest": "x"}, plan())) as address,
        Receiver(address, weights()) as receiver,
        pytest.raises(MismatchError),
    ):
        receiver.stage(timeout=LIMIT_S)
    assert resident_bytes() - before < 512 << 20


def test_versions_that_go_back() -> None:
    """A publisher that answers with what the reader has had, or with another one than asked for."""
    answer = saying(plan(version=2, entries=[entry(version=2)]))
    with publisher_that(answer) as address, Receiver(address) as receiver:
        receiver._version = 3
        with pytest.raises(ProtocolError, match="version 2"):
            receiver.stage(timeout=LIMIT_S)
        with pytest.raises(ProtocolError, match="version 2"):
            receiver.stage(version=7, timeout=LIMIT_S)


def test_a_slow_drip_ends_in_time() -> None:
    async def drip(channel: Channel, request: Document) -> None:
        if request["op"] == "want":
            await channel.send(plan(entries=[entry(size=10**6)]))
            return
        await channel.send({"size": 10**6})
        while True:
            await channel.send_run(memoryview(b"x"))
            await asyncio.sleep(0.05)

    with (
        publisher_that(drip) as address,
        Receiver(address) as receiver,
        pytest.raises(Timeout),
    ):
        receiver.stage(timeout=0.5)


def test_bytes_that_are_no_message() -> None:
    async def answer(channel: Channel, request: Document) -> None:
        if request["op"] == "want":
            await channel.send(plan(entries=[entry()]))
            return
        await channel.send({"size": 100})
        await channel.send_run(memoryview(bytes(100)))

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(Error, match="came damaged"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_another_message_than_announced() -> None:
    """The bits of version 0 as those of version 3: only the number is wrong."""
    with Publisher("127.0.0.1:0") as real:
        real.publish(weights())
        message = real._chain.entries[0]
        memory = bytes(real._store.memory(message))
    told = entry(made=message.made.hex(), size=message.size, checksum=message.checksum.hex())

    async def answer(channel: Channel, request: Document) -> None:
        if request["op"] == "want":
            await channel.send(plan(made=told["made"], entries=[told]))
            return
        await channel.send({"size": len(memory)})
        await channel.send_run(memoryview(memory)[request["begin"] : request["end"]])

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(Error, match="came damaged"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_a_publisher_that_is_silent_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the reader's time-out ends its wait, but another try: the publisher was stopped."""
    monkeypatch.setattr(following, "SILENCE_S", 0.1)
    monkeypatch.setattr(following, "ALIVE_S", 0.1)
    calls = []

    async def answer(channel: Channel, request: Document) -> None:
        calls.append(request)
        if len(calls) > 2:
            await channel.send({"error": "it is back"})

    with (
        publisher_that(answer) as address,
        Receiver(address) as receiver,
        pytest.raises(Error, match="it is back"),
    ):
        receiver.stage(timeout=LIMIT_S)


def test_who_does_not_answer_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_DIAL_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as door:
        begin = time.monotonic()
        with Receiver(f"127.0.0.1:{door.getsockname()[1]}") as receiver:
            with pytest.raises(Timeout):
                receiver.stage(timeout=1)
            assert time.monotonic() - begin >= 1


def test_an_answer_is_never_that_of_another_request() -> None:
    """After nonsense the connection is a new one, so what comes late is nobody's."""

    async def answer(channel: Channel, _: Document) -> None:
        await channel._send(wire.framed(b"[]"))
        await channel.send({"error": "the answer of before"})

    with publisher_that(answer) as address, Receiver(address) as receiver:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="no document"):
                receiver.stage(timeout=LIMIT_S)


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
                reader.sendall(wire._HEAD.pack(64 << 20, 0))
                for _ in range(1024):
                    reader.sendall(FILLING)
        served(publisher)
        assert resident_bytes() - before < 64 << 20


def test_a_reader_that_takes_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for a message and stops: its connection ends, and the message may go."""
    monkeypatch.setattr(wire, "STUCK_S", 1)
    random = np.random.default_rng(0)
    with Publisher("127.0.0.1:0") as publisher, caller(publisher.address) as ask:
        publisher.publish({"w": random.integers(0, 2**16, 10_000_000, dtype=np.uint16)})
        message = publisher._chain.entries[0]
        ask({"op": "join"})
        ask({"op": "get", "key": message.key, "begin": 0, "end": message.size})
        served(publisher)
        until(lambda: len(publisher._server._tasks) == 1)


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
