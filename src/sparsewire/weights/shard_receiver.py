"""A shard's receiver: its tensors are made of those of one publisher or several, by a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsewire.errors import InputError
from sparsewire.options import Address
from sparsewire.weights.access import address_of, described, secret_of
from sparsewire.weights.readers.end import ReadersEnd
from sparsewire.weights.readers.shard import Shard
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.resharding import Resharding
from sparsewire.weights.sync.subscription import Subscription
from sparsewire.weights.versions.coding import Coder


class ShardReceiver(ReadersEnd[Shard]):
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
        publishers = [address_of(each) for each in addresses]
        if not publishers:
            raise InputError("there is no publisher to follow: give their addresses")
        own_secret = secret_of(secret)
        resharding = Resharding(layout, weights)
        coder = Coder(threads)
        shard = Shard(resharding, len(publishers), coder)
        super().__init__(
            shard,
            described(name),
            "weights shard receiver",
            lambda: [
                Subscription(address, own_secret, track, self._tell, None)
                for address, track in zip(publishers, shard.tracks, strict=True)
            ],
        )
