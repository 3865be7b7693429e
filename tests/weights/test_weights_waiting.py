"""Readers that wait for versions: by a limit of time, on threads, and in event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from arrays import LIMIT_S, assert_alike, copy, step, weights
from support import until

from sparsewire.errors import (
    InputError,
    Timeout,
)
from sparsewire.weights import Publisher, Receiver, Staged


def test_waits_end(publisher: Publisher) -> None:
    with Receiver(publisher.address) as receiver:
        with pytest.raises(Timeout, match="nothing newer"):
            receiver.stage(timeout=0.1)
        publisher.publish(weights())
        with pytest.raises(Timeout, match="nothing newer"):
            receiver.stage(version=1, timeout=0.1)
        receiver.stage(timeout=LIMIT_S).apply()
        publisher.close()
        with pytest.raises(Timeout, match="did not answer in time"):
            receiver.stage(timeout=0.5)
    with pytest.raises(InputError, match="closed"):
        receiver.stage()
    with pytest.raises(InputError, match="closed"):
        publisher.publish(weights())


def test_watching(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    mine = copy(fresh)
    seen: list[int] = []

    def apply(staged: Staged) -> None:
        seen.append(staged.version)
        if staged.version == 1:
            raise ValueError("not this one")
        staged.verify().apply()

    with Receiver(publisher.address, mine) as receiver:
        watch = receiver.watch(apply)
        for number in range(3):
            until(lambda last=number: seen == list(range(last + 1)))
            step(fresh, number)
            publisher.publish(fresh)
        until(lambda: receiver.version == 3)
        # The watch waits for the next version meanwhile.
        until(lambda: publisher.status()["readers"][0]["version"] == 3)
        assert publisher.status()["readers"][0]["doing"] == "waiting"
        watch.stop()
    assert seen == [0, 1, 2, 3]
    assert_alike(mine, fresh)


def test_watching_goes_on(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    staging, failed = Receiver._staging, []

    async def failing(self: Receiver, *rest: Any) -> Staged:
        if not failed:
            failed.append(True)
            raise MemoryError
        return await staging(self, *rest)

    monkeypatch.setattr(Receiver, "_staging", failing)
    publisher.publish(weights())
    with Receiver(publisher.address) as receiver:
        watch = receiver.watch(Staged.apply)
        until(lambda: receiver.version == 0)
        watch.stop()


def test_async_forms(publisher: Publisher) -> None:
    fresh = weights()
    mine = copy(fresh)

    async def main() -> None:
        with Receiver(publisher.address, mine) as receiver:
            waiting = asyncio.create_task(receiver.stage_async(timeout=LIMIT_S))
            await publisher.publish_async(fresh)
            staged = await waiting
            await staged.verify_async()
            await staged.apply_async()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(receiver.stage_async(), 0.2)
            step(fresh)
            await publisher.publish_async(fresh)
            await (await receiver.stage_async(timeout=LIMIT_S)).apply_async()

    asyncio.run(main())
    assert_alike(mine, fresh)
