"""Asks a publisher for its status, without following it."""

from __future__ import annotations

import asyncio
from contextlib import closing

from sparsewire.errors import Error, Timeout
from sparsewire.options import Address
from sparsewire.weights.sync.channel import Channel, Document


def status_of(address: Address, secret: bytes, timeout: float) -> Document:
    """The status of the publisher at `address`, as `Publisher.status` gives it.

    Raises Timeout if it does not answer in `timeout` seconds, AuthenticationError for another
    secret, and Error for a relay, which has none.
    """
    return asyncio.run(_status_of(address, secret, timeout))


async def _status_of(address: Address, secret: bytes, timeout: float) -> Document:
    try:
        channel = await Channel.dial(address, secret, timeout)
        with closing(channel):
            await channel.send({"op": "status"})
            answer = await channel.receive(timeout)
    except OSError as error:
        raise Timeout(f"no publisher of weights answers at {address}: {error}") from None
    if "error" in answer:
        raise Error(str(answer["error"]))
    return answer
