"""What a rank of an engine has: weights made of those of one publisher or several, by a layout."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sparsewire.errors import DataError, InputError
from sparsewire.weights.readers.staged import Standing, check_standing
from sparsewire.weights.shards.resharding import Resharding
from sparsewire.weights.shards.targets import Write
from sparsewire.weights.sync.subscription import Arrived
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.safetensors import Span


class Track:
    """Which version of one publisher's parts the weights are made of."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.have: bytes | None = None
        self.digest = ""
        self.chain = ""
        self._spans: Mapping[str, Span] = {}

    def meet(self, names: Sequence[str], digest: str) -> None:
        """Slices have no fingerprint: the first version comes whole."""
        self.digest = digest

    def check(self, spans: Mapping[str, Span]) -> None:
        """The layout checks them, once those of all publishers are there."""

    def spans(self, arrived: Arrived) -> Mapping[str, Span]:
        """All parts of the version that arrived."""
        return arrived.deltas[-1].spans() if arrived.deltas else self._spans

    def follow(self, arrived: Arrived) -> None:
        self.version, self.have = arrived.plan.version, arrived.plan.made
        self.chain = arrived.plan.chain
        self._spans = self.spans(arrived)


class Shard:
    """The weights. Slices have no checksums: a version goes only over what it was made of."""

    def __init__(self, resharding: Resharding, publishers: int, coder: Coder) -> None:
        self.tracks = [Track() for _ in range(publishers)]
        self.verified: int | None = None
        self._resharding = resharding
        self._coder = coder
        self._busy = threading.Lock()

    @property
    def version(self) -> int | None:
        """The version that was applied last; None before."""
        return self.tracks[0].version

    @property
    def standing(self) -> list[Standing]:
        """Of each publisher the version that the weights are."""
        return [(each.version, each.have) for each in self.tracks]

    def next(self, arrived: Sequence[Arrived]) -> NextOfShard:
        """The version that arrived from all publishers, over the one that is here."""
        return NextOfShard(self, arrived)

    def prepare(self, arrived: Sequence[Arrived], over: list[Standing]) -> list[Write]:
        """What to write for the version that arrived while this was `over`; see `NextOfShard`."""
        with self._busy:
            self._check(arrived, over)
            self._check_layout(arrived)
            found = [
                write
                for each in arrived
                if each.deltas
                for write in self._resharding.changes(each.deltas, self._coder)
            ]
            self.verified = arrived[0].plan.version
            return found

    def _check(self, arrived: Sequence[Arrived], over: list[Standing]) -> None:
        self._coder.check_open()
        check_standing(self.standing, over, arrived[0].plan.version)

    def close(self) -> None:
        """End its coder, once what is under way is done."""
        with self._busy:
            self._coder.close()

    def _check_layout(self, arrived: Sequence[Arrived]) -> None:
        """Raise DataError where the parts are not those that the layout is made of."""
        spans: dict[str, Span] = {}
        aliases: dict[str, str] = {}
        for track, each in zip(self.tracks, arrived, strict=True):
            spans |= track.spans(each)
            for delta in each.deltas:
                aliases |= delta.aliases
        self._resharding.check(spans, aliases)

    def write(
        self, arrived: Sequence[Arrived], over: list[Standing], writes: Sequence[Write]
    ) -> None:
        """Make the weights the version. If it fails half-way, the next version comes whole."""
        with self._busy:
            self._check(arrived, over)
            self.forget()
            for write in writes:
                write.write()
            for track, each in zip(self.tracks, arrived, strict=True):
                track.follow(each)

    def forget(self) -> None:
        """Have the next version come whole."""
        for track in self.tracks:
            track.have = None


class NextOfShard:
    """The next version of a shard, as `Staged` verifies and applies it."""

    def __init__(self, shard: Shard, arrived: Sequence[Arrived]) -> None:
        self._shard = shard
        self._arrived = arrived
        self._over = shard.standing
        self._writes: list[Write] = []

    def verify(self) -> None:
        try:
            self._writes = self._shard.prepare(self._arrived, self._over)
        except DataError:
            self._shard.forget()
            raise

    def apply(self, model: Any) -> None:
        if model is not None:
            raise InputError("a shard's reader writes to its own weights: call apply() without any")
        self._shard.write(self._arrived, self._over, self._writes)
