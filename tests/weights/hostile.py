"""Ends of connections that do not keep to the rules: a publisher that answers by a script, and a
caller that says what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sparsewire.meeting.contact.sockets import bind
from sparsewire.options import Address
from sparsewire.weights.sync.channel import Channel, Document
from sparsewire.weights.sync.loop import LoopThread

Answer = Callable[[Channel, Document], Awaitable[None]]


@contextmanager
def publisher_that(answer: Answer) -> Iterator[Address]:
    """The address of what looks like a publisher: it takes `join`, and leaves others to `answer`.

    A connection ends where `answer` raises OSError.
    """
    door = bind("127.0.0.1", 0)
    loop = LoopThread("hostile publisher")

    async def talk(connection: Any) -> None:
        connection.setblocking(False)
        with contextlib.closing(connection), contextlib.suppress(OSError, asyncio.TimeoutError):
            channel = await Channel.accepted(connection, b"")
            while True:
                request = await channel.receive(60)
                if request["op"] == "join":
                    await channel.send({"chain": "one"})
                elif request["op"] != "tell":
                    await answer(channel, request)

    async def accept() -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(door)
            asyncio.ensure_future(talk(connection))  # noqa: RUF006 (the loop's end cancels it)

    loop.begin(accept())
    try:
        yield Address(*door.getsockname()[:2])
    finally:
        loop.close()
        door.close()


def saying(*documents: Document) -> Answer:
    """Answers each request with the next document, and the last one again and again."""
    left = list(documents)

    async def answer(channel: Channel, _: Document) -> None:
        await channel.send(left.pop(0) if len(left) > 1 else left[0])

    return answer


@contextmanager
def caller(address: Address, secret: bytes = b"") -> Iterator[Callable[[Document], Document]]:
    """What asks the publisher at `address` for anything, and returns its answers."""
    loop = LoopThread("hostile reader")

    async def ask(channel: Channel, request: Document) -> Document:
        await channel.send(request)
        while "alive" in (answer := await channel.receive(20)):
            pass
        return answer

    try:
        channel = loop.run(Channel.dial(address, secret, 20))
        yield lambda request: loop.run(ask(channel, request))
        loop.call(channel.close)
    finally:
        loop.close()


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
