"""A publisher or a reader on a host, real or emulated, which does what its standard input says.

    python benchmarks/weights_member.py publisher ADDRESS BYTES
    python benchmarks/weights_member.py reader ADDRESS BYTES NAME
    python benchmarks/weights_member.py crowd ADDRESS READERS
    python benchmarks/weights_member.py gloo ADDRESS BYTES RANK

It tells of each version in a line of JSON; times are of the clock that all processes share. BYTES
are those of the model that it begins with; 0: a publisher makes noise of the size that it is told,
and a reader gets its first version whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from weights_synthetic import model, step

from sparsewire.options import Address, parse_address
from sparsewire.weights import Publisher, Receiver
from sparsewire.weights.sync.channel import Channel

LIMIT_S = 300.0
READY_S = 0.005
Weights = dict[str, Any]


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Spent:
    """Seconds of processors, and bytes of memory at most, since it was made."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
        self._cpu = time.process_time()
        self._memory = _memory("VmRSS")

    def row(self) -> dict[str, float]:
        return {
            "cpu_s": time.process_time() - self._cpu,
            "memory_bytes": _memory("VmHWM") - self._memory,
        }


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise SystemExit(f"this system does not tell {name}")


def be_publisher(address: str, nbytes: int) -> None:
    """Each line of the input is a version: what changes, and how many readers wait for it."""
    weights: Weights = dict(model(nbytes)) if nbytes else {}
    with Publisher(address) as publisher:
        tell(ready=True)
        for seed, line in enumerate(sys.stdin, 1):
            publish(publisher, weights, np.random.default_rng(seed), **json.loads(line))


def publish(
    publisher: Publisher,
    weights: Weights,
    random: np.random.Generator,
    readers: int,
    share: float = 0,
    noise: int = 0,
) -> None:
    if noise:
        # A name of its own spares readers the search for what changed: links are to count.
        weights.clear()
        weights[f"noise {random.integers(2**31)}"] = random.integers(0, 2**63, noise // 8)
    for tensor in weights.values() if share else ():
        step(tensor, share, random)
    await_readers(publisher, readers)
    begin, spent = time.monotonic(), Spent()
    told = publisher.publish(weights)
    published, row = time.monotonic(), spent.row()
    while any(each["version"] != told.version for each in publisher.status()["readers"]):
        time.sleep(READY_S)
    row["cpu_s"] = spent.row()["cpu_s"]
    tell(begin=begin, published=published, changed=told.changed, nbytes=told.nbytes, **row)


def await_readers(publisher: Publisher, count: int) -> None:
    """Until so many wait for a version, and no other reader is left."""
    while [each["doing"] for each in publisher.status()["readers"]] != count * ["waiting"]:
        time.sleep(READY_S)


def be_reader(address: str, nbytes: int, name: str) -> None:
    """Follow the publisher until the process is ended."""
    weights: Weights = dict(model(nbytes)) if nbytes else {}
    with Receiver(address, weights, name=name, relay="0.0.0.0:0") as receiver:
        tell(ready=True)
        while True:
            read(receiver)


def read(receiver: Receiver) -> None:
    spent = Spent()
    staged = receiver.stage(timeout=LIMIT_S)
    stamps = {"staged": time.monotonic()}
    staged.verify()
    stamps["verified"] = time.monotonic()
    staged.apply()
    stamps["applied"] = time.monotonic()
    told = staged.way
    relayed = told.nbytes_from_relays
    tell(**stamps, nbytes=told.nbytes, nbytes_from_relays=relayed, **spent.row())


def be_crowd(address: str, count: int) -> None:
    """Many readers at once, which ask as readers do, and get nothing but answers."""
    asyncio.run(_crowd(parse_address(address), count))


async def _crowd(address: Address, count: int) -> None:
    channels = [await Channel.dial(address, b"", LIMIT_S) for _ in range(count)]
    for channel in channels:
        await channel.send({"op": "join", "name": "one of many", "relay": "0.0.0.0:1"})
        await channel.receive(LIMIT_S)
    tell(ready=True)
    has: dict[str, Any] = {"at": None, "have": "", "chain": ""}
    while True:
        plans = await asyncio.gather(*(_ask(channel, has) for channel in channels))
        at = plans[0]["version"]
        has = {"at": at, "have": plans[0]["made"], "chain": plans[0]["chain"]}
        told = time.monotonic()
        for channel in channels:
            await channel.send({"op": "tell", "applied": at})
        tell(told=told, trees=sum(plan["relays"] != [None] for plan in plans))


async def _ask(channel: Channel, has: dict[str, Any], names: str = "") -> dict[str, Any]:
    await channel.send({"op": "want", "version": None, "names": names, **has})
    answer: dict[str, Any] = {"alive": True}
    while "alive" in answer:
        answer = await channel.receive(LIMIT_S)
    return await _ask(channel, has, answer["digest"]) if "names" in answer else answer


def be_gloo(address: str, nbytes: int, rank: str) -> None:
    """Each line of the input is a broadcast of the whole model, tensor by tensor."""
    import torch
    import torch.distributed as dist

    weights = [torch.from_numpy(each.data) for each in model(nbytes).values()]
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"tcp://{address}", rank=int(rank), world_size=size)
    tell(ready=True)
    for _ in sys.stdin:
        dist.barrier()
        begin = time.monotonic()
        for each in weights:
            dist.broadcast(each, 0)
        tell(begin=begin, applied=time.monotonic(), model_bytes=sum(map(torch.numel, weights)))


ROLES = {"publisher": be_publisher, "reader": be_reader, "crowd": be_crowd, "gloo": be_gloo}


def main() -> None:
    role, address, nbytes, *name = sys.argv[1:]
    ROLES[role](address, int(nbytes), *name)


if __name__ == "__main__":
    main()
