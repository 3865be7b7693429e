"""One thread with an event loop, on which everything of a publisher or a receiver waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from enum import Enum
from typing import Any, TypeVar

from sparsewire.errors import Error, InputError

T = TypeVar("T")
_PATIENCE_S = 5.0


class Life(Enum):
    """Whether a loop takes work: what it takes is done, or cancelled when it ends."""

    RUNNING = "running"
    ENDING = "ending"


class LoopThread:
    """Runs coroutines for callers of other threads, until it is closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._beginning = threading.Lock()
        self._life = Life.RUNNING
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and self._life is Life.RUNNING

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have the loop run it; cancelling the future cancels it.

        Raises InputError if the loop was closed, also in a parent of this process.
        """
        if self._thread.is_alive():  # A forked child has the lock in whatever state.
            with self._beginning:
                if self.is_running:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise InputError(f"this {self._name} is closed: make a new one")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop run it, and wait for what it returns or raises.

        Raises Error if the loop is closed meanwhile.
        """
        future = self.begin(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._closed_meanwhile() from None
        except BaseException:
            future.cancel()
            raise

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """`run` for another event loop. Cancelling it cancels the work."""
        future = self.begin(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self.is_running:
                raise
            raise self._closed_meanwhile() from None

    def _closed_meanwhile(self) -> Error:
        return Error(f"this {self._name} was closed meanwhile")

    def call(self, work: Callable[[], T]) -> T:
        """Call `work` on the loop's thread, and wait for what it returns or raises."""

        async def called() -> T:
            return work()

        return self.run(called())

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        with self._beginning:
            if not self.is_running:
                return
            self._life = Life.ENDING
        ending = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        with contextlib.suppress(concurrent.futures.TimeoutError):
            ending.result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
