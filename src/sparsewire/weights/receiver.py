"""The receiver: a reader's end, which stages new versions beside its work and applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsewire.meeting.contact.sockets import bind as bind_door
from sparsewire.options import Address
from sparsewire.weights.access import address_of, described, secret_of
from sparsewire.weights.readers.base import OwnBase
from sparsewire.weights.readers.end import ReadersEnd
from sparsewire.weights.readers.home import home_of
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.subscription import Subscription
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.tensors import Tensor


class Receiver(ReadersEnd[OwnBase]):
    """Follows a `Publisher`: `stage()` gets a version, `verify()` checks it, `apply()` writes it.

    Use it in a `with`, or close it. Its methods are for one thread at a time, but for `status`.
    """

    def __init__(
        self,
        address: str | Address,
        base: Any = None,
        *,
        secret: str | bytes | None = None,
        name: str | None = None,
        relay: str | Address | None = None,
        site: str = "",
        mbits: float = 0,
        threads: int | None = None,
    ) -> None:
        """Follow the publisher at `address`, "host:port", which need not be there yet.

        `base` is what the reader has: a module or a mapping of names to tensors, which `apply`
        changes in place; the path of a safetensors file or directory, which is read into memory
        as it changes; or None, and the first version comes whole. If the publisher knows the bits
        of the base, only what changed comes. `tensors` has all of it.

        With `relay`, an address to listen at ("0.0.0.0:0" finds a port), it passes messages on to
        other readers. `site` names where it stands: between sites each message goes about once.
        `mbits` is the speed of its link, which places it in the tree. `name` is for `status`.

        Raises InputError for a base or a setting that is none, DataError for files that are none,
        Error if it cannot listen, OSError for files that cannot be read.
        """
        publisher = address_of(address)
        door = None if relay is None else bind_door(*address_of(relay))
        own_secret = secret_of(secret)
        coder = Coder(threads)
        own = OwnBase(home_of(base), coder)
        super().__init__(
            own,
            described(name, site, mbits),
            "weights receiver",
            lambda: [Subscription(publisher, own_secret, own, self._tell, door)],
        )

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors of the base, by name; `as_torch` and `as_numpy` give views of them."""
        return self._weights.home.tensors

    @property
    def relay(self) -> Address | None:
        """Where it listens to pass messages on."""
        return self._subscriptions[0].relay

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that came of what is being staged, and of how many; zeros between."""
        return self._subscriptions[0].progress

    def status(self) -> Document:
        """What this reader has and passes on, as values of JSON."""
        have = self._weights.have
        return {
            "name": self._about["name"],
            "publisher": str(self._subscriptions[0].address),
            "version": self._weights.version,
            "verified": self._weights.verified,
            "fingerprint": have.hex() if have else None,
            "relay": str(self.relay) if self.relay else None,
            "bytes_sent": self._subscriptions[0].bytes_sent,
        }
