"""Readers find their publisher at any address of its host, and give up when they said."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hostile import publisher_that

from sparsewire.errors import Timeout
from sparsewire.options import Address
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.sync import fetch
from sparsewire.weights.sync.channel import Channel, Document

VALUES = np.arange(4, dtype=np.float32)
PLAN = {
    "chain": "one",
    "version": 1,
    "made": bytes(16).hex(),
    "whole_nbytes": 100,
    "entries": [
        {
            "version": 1,
            "base": None,
            "had": "",
            "made": bytes(16).hex(),
            "size": 100,
            "checksum": bytes(16).hex(),
        }
    ],
    "relays": [None],
}


def test_a_publisher_at_the_second_address_of_its_host_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Publisher("127.0.0.1:0") as publisher:
        port = publisher.address.port
        ends = [(None, None, 0, "", (host, port)) for host in ("::1", "127.0.0.1")]

        async def both(*_: Any, **__: Any) -> list[Any]:
            return ends

        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", both)
        publisher.publish({"a": VALUES})
        with Receiver(Address("two.example", port)) as reader:
            reader.stage(timeout=5).apply()


@pytest.mark.timeout(30)
def test_a_publisher_that_stalls_within_a_message_ends_a_stage_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stalls(channel: Channel, request: Document) -> None:
        if request["op"] == "want":
            await channel.send({"names": [], "digest": "one"} if not request["names"] else PLAN)
        else:
            await channel.send({"size": 100})
            await asyncio.sleep(3600)

    monkeypatch.setattr(fetch, "SILENCE_S", 3600.0)
    with (
        publisher_that(stalls) as address,
        Receiver(address) as reader,
        pytest.raises(Timeout, match="did not come in time"),
    ):
        reader.stage(timeout=0.5)
