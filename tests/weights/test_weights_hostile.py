"""Publishers, relays and readers that lie: errors say so, memory is bounded, others are served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy as copied
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hostile import caller, publisher_that, resident_bytes, saying
from hypothesis import given
from hypothesis import strategies as st
from support import until
from test_weights_sync import LIMIT_S, assert_alike, copy, step, weights

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import (
    DataError,
    Error,
    InputError,
    MismatchError,
    ProtocolError,
    ResourceError,
    Timeout,
)
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
from sparsewire.weights.readers.home import home_of
from sparsewire.weights.readers.preparing import prepare
from sparsewire.weights.sync import channel as wire
from sparsewire.weights.sync import fetch, server
from sparsewire.weights.sync import follow as following
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.versions import message as message_module
from sparsewire.weights.versions.coding import Coder, checksum
from sparsewire.weights.versions.message import parse
from sparsewire.weights.versions.spool import memory

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


def test_other_bits_under_the_number_that_a_reader_has() -> None:
    """A publisher that was started anew, without its directory, gets as far while nobody looks."""
    fresh = weights()
    mine = copy(fresh)
    with Publisher("127.0.0.1:0") as publisher:
        address = publisher.address
        publisher.publish(fresh)
        receiver = Receiver(address, mine)
        receiver.stage(timeout=LIMIT_S).apply()
    step(fresh)
    with Publisher(address) as publisher, receiver:
        publisher.publish(fresh)
        assert receiver.stage(timeout=LIMIT_S).apply().version == 0
        assert_alike(mine, fresh)
        with pytest.raises(Timeout):
            receiver.stage(timeout=0.3)


def test_versions_of_the_same_bits_only_grow() -> None:
    fresh = weights()
    with Publisher("127.0.0.1:0") as publisher, Receiver(publisher.address, fresh) as receiver:
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        publisher.publish(fresh)
        earlier = receiver.stage(timeout=LIMIT_S)
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        with pytest.raises(InputError, match="staged over another version"):
            earlier.apply()
        assert receiver.version == 2


class Messages(NamedTuple):
    """What a publisher sent: a whole version, and a delta to the next."""

    anchor: bytes
    delta: bytes


@cache
def messages() -> Messages:
    fresh = {"a": np.arange(500, dtype=np.uint16), "b": np.zeros((3, 2), np.float32)}
    with Publisher("127.0.0.1:0", threads=1) as publisher:
        publisher.publish(fresh)
        fresh["a"][::9] += 1
        publisher.publish(fresh | {"c": np.ones(70_000, np.int8)})
        entries = publisher._chain.entries
        return Messages(*(bytes(publisher._store.memory(entry)) for entry in entries[:2]))


def sealed(body: bytes) -> bytes:
    """With the checksum that it has to have."""
    return body + checksum(body)


def with_document(message: bytes, text: bytes) -> bytes:
    """The message with this document instead of its own."""
    size = int.from_bytes(message[-24:-16], "little")
    packed = zlib.compress(text)
    return sealed(message[: -24 - size] + packed + len(packed).to_bytes(8, "little"))


def document_of(message: bytes) -> Any:
    size = int.from_bytes(message[-24:-16], "little")
    return json.loads(zlib.decompress(message[-24 - size : -24]))


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 2**31, 2**63, 2**64, 10**30, 1e308, "", "a", "../x", "\ud800", "00"]),
    st.integers(-5, 10**6),
    st.just([]),
    st.just({}),
    st.just(["a", "00" * 16, 1, True, [2**62]]),
    st.just({"a": "b", "b": "a"}),
)


def exchanged(data: st.DataObject, node: Any) -> Any:
    """The same but for one value, somewhere in it."""
    if not isinstance(node, (dict, list)) or not node or data.draw(st.integers(0, 4)) == 0:
        return data.draw(ODD)
    made = copied(node)
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = data.draw(st.sampled_from(keys))
    made[key] = exchanged(data, node[key])
    return made


def check_taken(message: bytes) -> None:
    """It is refused by name, or makes another version beside weights that stay as they are."""
    weights = {"a": np.arange(500, dtype=np.uint16), "b": np.zeros((3, 2), np.float32)}
    before = copied(weights)
    try:
        delta = parse(memoryview(message), "the message")
        sums = {name: checksum(each) for name, each in weights.items()}
        with Coder(1) as coder:
            prepare([delta], home_of(weights), sums, coder, memory)
    except (DataError, MismatchError, ResourceError):
        pass
    assert all((weights[name] == each).all() for name, each in before.items())


@given(st.data())
def test_documents_of_messages_that_lie(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(messages()))
    document = document_of(message)
    for _ in range(data.draw(st.integers(1, 3))):
        document = exchanged(data, document)
    check_taken(with_document(message, json.dumps(document).encode()))


@given(st.data())
def test_bytes_of_messages_that_lie(data: st.DataObject) -> None:
    message = bytearray(data.draw(st.sampled_from(messages()))[:-16])
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    del message[data.draw(st.integers(0, len(message))) if data.draw(st.booleans()) else None :]
    check_taken(sealed(bytes(message)))


@pytest.mark.parametrize("text", [b"[" * 10**6, b'{"a":' * 10**5, b"1" * 10**5, b"{}", b"\xff"])
def test_documents_of_messages_that_are_none(text: bytes) -> None:
    with pytest.raises(DataError):
        parse(memoryview(with_document(messages().delta, text)), "the message")


def test_a_document_that_swells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes make no more memory than a document may have."""
    monkeypatch.setattr(message_module, "_DOCUMENT_MAX", 1 << 20)
    swelling = with_document(messages().delta, b" " * (64 << 20))
    assert len(swelling) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="too long"):
            parse(memoryview(swelling), "the message")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_tensor_beyond_all_memory() -> None:
    """Its message has a code for each of its chunks, as many as a document may tell of."""
    document = document_of(messages().anchor)
    chunks = 2**42 // DELTA_CHUNK
    entry = {"dtype": "U8", "shape": [2**42], "data_offsets": [0, 2**42]}
    document["headers"] = {"model.safetensors": json.dumps({"a": entry})}
    document["tensors"] = [["a", "00" * 16, 0, True, [1] * chunks]]
    body = messages().anchor[:8] + bytes(chunks) + bytes(24)
    lying = with_document(body, json.dumps(document).encode())
    delta = parse(memoryview(lying), "the message")
    with Coder(1) as coder, pytest.raises(ResourceError, match="no memory"):
        prepare([delta], home_of(None), {}, coder, memory)
