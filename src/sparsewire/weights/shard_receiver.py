"""A shard's reader: its tensors are made of those of one publisher or several, by a layout."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparsewire.errors import DataError, Error, InputError
from sparsewire.lifetime import close_at_exit, closes_now
from sparsewire.options import Address, parse_address
from sparsewire.weights.access import described, secret_of
from sparsewire.weights.readers.staged import Staged, way_of
from sparsewire.weights.readers.watch import Watch
from sparsewire.weights.receiver import limit_of
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.resharding import Resharding
from sparsewire.weights.shards.targets import Write
from sparsewire.weights.sync.chain import check_version
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.loop import LoopThread
from sparsewire.weights.sync.subscription import Arrived, Subscription
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.safetensors import Span


class Track:
    """Which version of one publisher's parts the weights are made of."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.have: bytes | None = None
        self.digest = ""
        self.chain = ""
        self.spans: Mapping[str, Span] = {}

    def meet(self, names: Sequence[str], digest: str) -> None:
        """Slices have no fingerprint: the first version comes whole."""
        self.digest = digest

    def check(self, spans: Mapping[str, Span]) -> None:
        """The layout checks them, once those of all publishers are there."""

    def follow(self, arrived: Arrived) -> None:
        self.version, self.have = arrived.plan.version, arrived.plan.made
        self.chain = arrived.plan.chain
        self.spans = _spans(self, arrived)


Over = list[tuple[int | None, bytes | None]]
"""Of each publisher the version that the weights are, by its number and its fingerprint."""


class ShardReceiver:
    """Follows one publisher, or one for each of the trainers' ranks, which publish their own parts
    (`own_parts`), and brings versions to the tensors of one rank of an engine, as a `Layout` says.

    It keeps no copy of the published tensors. Slices have no checksum of their own: each message
    is checked as a whole, and is applied only over the version that it was made of.
    """

    def __init__(
        self,
        addresses: Sequence[str | Address],
        weights: Any,
        layout: Layout,
        *,
        secret: str | bytes | None = None,
        name: str | None = None,
        threads: int | None = None,
    ) -> None:
        """Follow the publishers at `addresses`, which need not be there yet.

        `weights` are a module or a mapping of names to tensors of torch or arrays, on any device,
        with a view in `layout` for each that is read. The first version comes whole.

        Raises InputError for weights or settings that are none, DataError for a layout of other
        weights.
        """
        try:
            publishers = [
                parse_address(each) if isinstance(each, str) else each for each in addresses
            ]
        except ValueError as error:
            raise InputError(str(error)) from None
        if not publishers:
            raise InputError("there is no publisher to follow: give their addresses")
        own_secret = secret_of(secret)
        self._resharding = Resharding(layout, weights)
        self._about = described(name)
        self._tracks = [Track() for _ in publishers]
        self._verified: int | None = None
        self._busy = threading.Lock()
        self._coder = Coder(threads)
        self._loop = LoopThread("weights shard receiver")
        self._subscriptions = self._loop.call(
            lambda: [
                Subscription(address, own_secret, track, self._tell, None)
                for address, track in zip(publishers, self._tracks, strict=True)
            ]
        )
        self._close = self.close
        close_at_exit(self._close)

    def _tell(self) -> Document:
        return {**self._about, "applied": self.version, "verified": self._verified}

    @property
    def version(self) -> int | None:
        """The version that was applied last; None before."""
        return self._tracks[0].version

    def stage(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """Wait for a version newer than this one, or for `version`, from all publishers.

        Raises what `Receiver.stage` does.
        """
        self._check_open()
        return self._loop.run(self._staging(version, None, limit_of(timeout)))

    async def stage_async(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """`stage` for an event loop. Cancelling it ends the wait."""
        self._check_open()
        return await self._loop.wait(self._staging(version, None, limit_of(timeout)))

    def watch(self, callback: Callable[[Staged], object]) -> Watch:
        """Call `callback` with each new version, as `Receiver.watch` does."""
        self._check_open()
        return Watch(self._loop, self._staging, callback)

    async def _staging(self, version: int | None, above: int | None, limit: float) -> Staged:
        if version is not None:
            check_version(version)
        first, *others = self._subscriptions
        leading = await first.obtain(version, above, limit)
        number = leading.plan.version
        rest = await asyncio.gather(*(each.obtain(number, None, limit) for each in others))
        arrived = [leading, *rest]
        changed = dict.fromkeys(
            name for each in arrived for delta in each.deltas for name in delta.tensors
        )
        following = _Following(self, arrived)
        return Staged(*way_of(arrived), list(changed), following, self._note)

    def _note(self) -> None:
        with contextlib.suppress(Error):  # It may be closed meanwhile.
            self._loop.call(self._note_all)

    def _note_all(self) -> None:
        for each in self._subscriptions:
            each.note()

    def prepare(self, arrived: Sequence[Arrived], over: Over) -> list[Write]:
        """What to write for a version of all publishers; raises what `Staged.verify` does."""
        with self._busy:
            self._check_over(arrived, over)
            spans: dict[str, Span] = {}
            aliases: dict[str, str] = {}
            for track, each in zip(self._tracks, arrived, strict=True):
                spans |= _spans(track, each)
                for delta in each.deltas:
                    aliases |= delta.aliases
            self._resharding.check(spans, aliases)
            found = [
                write
                for each in arrived
                if each.deltas
                for write in self._resharding.changes(each.deltas, self._coder)
            ]
            self._verified = arrived[0].plan.version
            return found

    def write(self, arrived: Sequence[Arrived], over: Over, writes: Sequence[Write]) -> None:
        """Make the weights the version. If it fails half-way, the next version comes whole."""
        with self._busy:
            self._check_over(arrived, over)
            self.forget()
            for write in writes:
                write.write()
            for track, each in zip(self._tracks, arrived, strict=True):
                track.follow(each)

    def forget(self) -> None:
        """Have the next version come whole."""
        for track in self._tracks:
            track.have = None

    def over(self) -> Over:
        """What the weights are now, to tell whether that is still the base of what was staged."""
        return [(each.version, each.have) for each in self._tracks]

    def _check_over(self, arrived: Sequence[Arrived], over: Over) -> None:
        """Raise InputError where another version was applied meanwhile, by whatever thread."""
        self._check_open()
        if self.over() != over:
            raise InputError(
                f"version {arrived[0].plan.version} was staged over another version than the one "
                "that is here now: stage it again"
            )

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise InputError("this receiver is closed: make a new one")

    def __enter__(self) -> ShardReceiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the publishers, as `Receiver.close` does; the weights stay as they are."""
        closes_now(self._close)
        if not self._loop.is_running:
            return
        self._loop.close()
        for each in self._subscriptions:
            each.close()
        with self._busy:
            self._coder.close()


class _Following:
    """The next version of a shard."""

    def __init__(self, receiver: ShardReceiver, arrived: Sequence[Arrived]) -> None:
        self._receiver = receiver
        self._arrived = arrived
        self._over = receiver.over()
        self._writes: list[Write] = []

    def verify(self) -> None:
        try:
            self._writes = self._receiver.prepare(self._arrived, self._over)
        except DataError:
            self._receiver.forget()
            raise

    def apply(self, model: Any) -> None:
        if model is not None:
            raise InputError("a shard's reader writes to its own weights: call apply() without any")
        self._receiver.write(self._arrived, self._over, self._writes)


def _spans(track: Track, arrived: Arrived) -> Mapping[str, Span]:
    return arrived.deltas[-1].spans() if arrived.deltas else track.spans
