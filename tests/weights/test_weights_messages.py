"""Messages that lie: they are refused by name, in bounded memory, and no weight changes."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from copy import deepcopy as copied
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import (
    DataError,
    MismatchError,
    ResourceError,
)
from sparsewire.weights import Publisher
from sparsewire.weights.readers.home import home_of
from sparsewire.weights.readers.preparing import prepare
from sparsewire.weights.versions import message as message_module
from sparsewire.weights.versions.coding import Coder, checksum
from sparsewire.weights.versions.message import parse
from sparsewire.weights.versions.spool import memory


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
