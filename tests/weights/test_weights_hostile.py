"""Publishers and relays that lie to a reader: errors say so, in time and in bounded memory."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from arrays import LIMIT_S, weights
from hostile import caller, publisher_that, resident_bytes, saying
from support import until

from sparsewire.errors import (
    Error,
    MismatchError,
    ProtocolError,
    ResourceError,
    Timeout,
)
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.sync import channel as wire
from sparsewire.weights.sync import fetch
from sparsewire.weights.sync import follow as following
from sparsewire.weights.sync.channel import Channel, Document

SUM = "ab" * 16


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
        receiver._weights.version, receiver._weights.chain = 3, "one"
        receiver._subscriptions[0]._chain = "one"
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


@pytest.mark.parametrize("run", [b"", b"x"], ids=["waiting", "dripping"])
def test_a_relay_that_passes_on_too_little(monkeypatch: pytest.MonkeyPatch, run: bytes) -> None:
    """It lives, so it says; the reader goes to the publisher, and so do those that come later."""
    monkeypatch.setattr(fetch, "_PATIENCE_S", 0.2)

    async def drip(channel: Channel, request: Document) -> None:
        await channel.send({"size": publisher._chain.entries[0].size})
        while True:
            await channel.send_run(memoryview(run))
            await asyncio.sleep(0.05)

    with (
        Publisher("127.0.0.1:0") as publisher,
        publisher_that(drip) as relay,
        caller(publisher.address) as ask,
    ):
        publisher.publish(weights())
        ask({"op": "join", "relay": str(relay)})
        digest = ask({"op": "want", "have": "", "names": ""})["digest"]
        assert ask({"op": "want", "have": "", "names": digest})["relays"] == [None]
        with Receiver(publisher.address) as receiver:
            staged = receiver.stage(timeout=LIMIT_S).apply()
            assert staged.way.nbytes_from_relays < 100
        until(lambda: not any(row["relay"] for row in publisher.status()["readers"]))


def test_a_message_that_is_gone_meanwhile() -> None:
    """Between its answer and the reader's call a publisher may have dropped it."""
    fresh = weights()
    with Publisher("127.0.0.1:0") as publisher:
        publisher.publish(fresh)
        held = publisher._shelf.get(publisher._chain.entries[0].key)
        assert held
        with (
            Receiver(publisher.address) as receiver,
            ThreadPoolExecutor(1) as threads,
        ):
            publisher._loop.call(lambda: publisher._shelf.drop([held.entry.key]))
            staged = threads.submit(receiver.stage, timeout=LIMIT_S)
            until(lambda: [row["doing"] for row in publisher.status()["readers"]] == ["staging"])
            publisher._loop.call(lambda: publisher._shelf.put(held))
            assert staged.result().apply().version == 0
