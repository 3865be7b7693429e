"""Gives a publisher, which pulls tensors, those that a training's own loop pushes.

The loop stays in its thread: it gathers shards as it goes, and a device is current to a thread.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsewire.weights.publisher import Published

Pair = tuple[str, Any]


class Handover:
    """One version, tensor by tensor. It is published by `finish`, or not at all."""

    def __init__(self, publish: Callable[[Iterator[Pair]], Published]) -> None:
        self._publish = publish
        self._offered: queue.SimpleQueue[Pair | BaseException | None] = queue.SimpleQueue()
        self._taken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._published: Future[Published] = Future()
        # One that failed takes no more, and nobody may wait for it.
        self._published.add_done_callback(lambda _: self._taken.put(None))
        Thread(target=self._run, name="publish", daemon=True).start()

    def _run(self) -> None:
        try:
            self._published.set_result(self._publish(self._pulled()))
        except BaseException as error:
            self._published.set_exception(error)

    def _pulled(self) -> Iterator[Pair]:
        while pair := self._offered.get():
            if isinstance(pair, BaseException):
                raise pair
            yield pair
            self._taken.put(None)

    def put(self, name: str, tensor: Any) -> None:
        """Give one tensor, and wait until its memory is free.

        If `publish` has failed, it does nothing: other ranks gather tensors with this one, so its
        loop has to go on to its end. `finish` raises then.
        """
        if not self._published.done():
            self._offered.put((name, tensor))
            self._taken.get()

    def finish(self) -> Published:
        """Publish what was given; raises what `publish` raises."""
        self._offered.put(None)
        return self._published.result()

    def abandon(self, cause: BaseException) -> None:
        """Publish nothing: the loop has failed."""
        self._offered.put(cause)
        self._published.exception()
