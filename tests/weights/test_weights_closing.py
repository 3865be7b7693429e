"""Receivers that are closed, and watches that are stopped, while something is under way."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import until

from sparsewire.errors import Error, InputError
from sparsewire.weights import Publisher, Receiver, Staged, Watch
from sparsewire.weights.readers import base
from sparsewire.weights.readers.checkout import MARK, Checkout
from sparsewire.weights.sync.loop import LoopThread

LIMIT_S = 10.0
VALUES = np.arange(4, dtype=np.float32)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher("127.0.0.1:0") as found:
        found.publish({"a": VALUES})
        yield found


def waits(publisher: Publisher) -> None:
    until(lambda: any(each["doing"] == "waiting" for each in publisher.status()["readers"]))


def test_a_close_ends_a_wait_with_an_error(publisher: Publisher) -> None:
    with ThreadPoolExecutor(1) as pool, Receiver(publisher.address) as reader:
        reader.stage(timeout=LIMIT_S).apply()
        waiting = pool.submit(reader.stage)
        waits(publisher)
        reader.close()
        with pytest.raises(Error, match="closed meanwhile"):
            waiting.result(LIMIT_S)


def test_a_close_does_not_cancel_the_task_that_waits(publisher: Publisher) -> None:
    async def main(reader: Receiver) -> None:
        waiting = asyncio.ensure_future(reader.stage_async())
        await asyncio.to_thread(waits, publisher)
        await asyncio.to_thread(reader.close)
        with pytest.raises(Error, match="closed meanwhile"):
            await waiting

    with Receiver(publisher.address) as reader:
        reader.stage(timeout=LIMIT_S).apply()
        asyncio.run(main(reader))


@pytest.mark.parametrize("is_verified", [False, True])
def test_what_is_staged_ends_with_its_receiver(
    publisher: Publisher, tmp_path: Path, is_verified: bool
) -> None:
    with Receiver(publisher.address, Checkout(tmp_path)) as reader:
        reader.stage(timeout=LIMIT_S).apply()
        publisher.publish({"a": VALUES + 1})
        staged = reader.stage(timeout=LIMIT_S)
        if is_verified:
            staged.verify()
    with pytest.raises(InputError, match="closed"):
        staged.apply()
    assert json.loads((tmp_path / MARK).read_text()) == {"condition": "whole", "version": 0}


def test_a_close_waits_for_what_is_applied(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, closing = threading.Event(), threading.Event()
    write = base.Prepared.write

    def slow(*given: Any) -> None:
        writing.set()
        closing.wait(LIMIT_S)
        write(*given)

    own = {"a": np.zeros(4, np.float32)}
    monkeypatch.setattr(base.Prepared, "write", slow)
    with ThreadPoolExecutor(2) as pool, Receiver(publisher.address, own) as reader:
        applying = pool.submit(reader.stage(timeout=LIMIT_S).apply)
        assert writing.wait(LIMIT_S)
        closed = pool.submit(reader.close)
        until(lambda: not reader._loop.is_running)
        closing.set()
        applying.result(LIMIT_S)
        closed.result(LIMIT_S)
    np.testing.assert_array_equal(own["a"], VALUES)


def test_a_watch_ends_with_its_receiver(
    publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver(publisher.address) as reader:

        def close(staged: Staged) -> None:
            reader.close()

        watch = reader.watch(close)
        watch._thread.join(LIMIT_S)
        assert not watch._thread.is_alive()
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


class Unready(LoopThread):
    """A loop that takes its time to begin: until somebody stops the watch."""

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        work.close()
        self.is_begun.set()
        self.is_stopped.wait(LIMIT_S)
        return Future()

    is_begun = threading.Event()
    is_stopped = threading.Event()


def test_a_watch_that_begins_to_wait_is_stopped() -> None:
    async def never(*_: Any) -> Any: ...

    loop = Unready("loop")
    watch = Watch(loop, never, print)
    assert loop.is_begun.wait(LIMIT_S)
    stopping = threading.Thread(target=watch.stop, daemon=True)
    stopping.start()
    until(watch._stopping.is_set)
    loop.is_stopped.set()
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()
    loop.close()
