"""A reader's end, of one publisher or several: stages new versions on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from sparsewire.errors import Error, InputError
from sparsewire.lifetime import close_at_exit, closes_now
from sparsewire.weights.readers.staged import Following, Staged, way_of
from sparsewire.weights.readers.watch import Watch
from sparsewire.weights.sync.chain import check_version
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.loop import LoopThread
from sparsewire.weights.sync.subscription import Arrived, Subscription

TIMEOUT_S = 300.0


class Weights(Protocol):
    """What a reader has: `version` was applied last, and `verified` is ready; None before."""

    @property
    def version(self) -> int | None: ...
    @property
    def verified(self) -> int | None: ...
    def next(self, arrived: Sequence[Arrived]) -> Following:
        """The version that arrived, from each publisher, over the one that is here."""

    def close(self) -> None:
        """End its work, once what is under way is done."""


W = TypeVar("W", bound=Weights)
End = TypeVar("End")


class ReadersEnd(Generic[W]):
    """What `Receiver` and `ShardReceiver` have alike. Use it in a `with`, or close it."""

    def __init__(
        self,
        weights: W,
        about: Document,
        thread: str,
        subscribe: Callable[[], list[Subscription]],
    ) -> None:
        """Follow what `subscribe` makes on the loop's thread, and close the weights in the end.

        `about` is what publishers hear of the reader beside its versions.
        """
        self._weights = weights
        self._about = about
        self._loop = LoopThread(thread)
        self._subscriptions = self._loop.call(subscribe)
        self._close = self.close
        close_at_exit(self._close)

    def _tell(self) -> Document:
        """What a publisher hears of this reader."""
        versions = {"applied": self._weights.version, "verified": self._weights.verified}
        return {**self._about, **versions}

    @property
    def version(self) -> int | None:
        """The version that was applied last; None before."""
        return self._weights.version

    def stage(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """Wait for a version newer than this one, or for `version`, and get it in full.

        It takes `timeout` seconds at most, 300 by default. What comes, from each publisher, is
        deltas or the whole version, whatever has fewer bytes. Memory beside the message is a few
        chunks.

        Raises Timeout; AuthenticationError for another secret; MismatchError where the reader
        cannot take the version's tensors; DataError for a message that is damaged, even as the
        whole version; ProtocolError for answers of no publisher; Error where the publisher has no
        such version; ResourceError where there is no room.
        """
        self._check_open()
        return self._loop.run(self._staging(version, None, _limit(timeout)))

    async def stage_async(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """`stage` for an event loop. Cancelling it ends the wait."""
        self._check_open()
        return await self._loop.wait(self._staging(version, None, _limit(timeout)))

    def watch(self, callback: Callable[[Staged], object]) -> Watch:
        """Call `callback` with each new version, staged, on a thread of its own, until `stop()`.

        It calls `verify` and `apply` when it suits the reader. A version that it leaves is skipped.
        What it raises is logged, and so are failures of the publisher or the network, and the
        watch goes on.
        """
        self._check_open()
        return Watch(self._loop, self._staging, callback)

    async def _staging(self, version: int | None, above: int | None, limit: float) -> Staged:
        """Stage `version`, or one newer than both what is applied and `above`."""
        if version is not None:
            check_version(version)
        first, *others = self._subscriptions
        leading = await first.obtain(version, above, limit)
        number = leading.plan.version
        rest = await asyncio.gather(*(each.obtain(number, None, limit) for each in others))
        arrived = [leading, *rest]
        deltas = (delta for each in arrived for delta in each.deltas)
        changed = dict.fromkeys(name for delta in deltas for name in delta.tensors)
        return Staged(*way_of(arrived), list(changed), self._weights.next(arrived), self._note)

    def _note(self) -> None:
        """Tell the publishers, soon, how far this reader is."""
        with contextlib.suppress(Error):  # It may be closed meanwhile.
            self._loop.call(self._note_all)

    def _note_all(self) -> None:
        for each in self._subscriptions:
            each.note()

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise InputError("this receiver is closed: make a new one")

    def __enter__(self: End) -> End:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the publishers; the weights stay as they are.

        An `apply` that is under way is waited for. What waits for a version raises Error, and what
        is staged can no longer be applied.
        """
        closes_now(self._close)
        if not self._loop.is_running:
            return
        self._loop.close()
        for each in self._subscriptions:
            each.close()
        self._weights.close()


def _limit(timeout: float | None) -> float:
    """Seconds to wait; raises InputError for what are none."""
    if timeout is None:
        return TIMEOUT_S
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"timeout={timeout!r:.40} is no number of seconds")
    return timeout
