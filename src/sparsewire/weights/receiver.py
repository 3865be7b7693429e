"""The receiver: a reader's end, which stages new versions beside its work and applies them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any

from sparsewire.errors import Error, InputError
from sparsewire.lifetime import close_at_exit, closes_now
from sparsewire.meeting.contact.sockets import bind as bind_door
from sparsewire.options import Address, parse_address
from sparsewire.weights.access import described, secret_of
from sparsewire.weights.readers.base import OwnBase
from sparsewire.weights.readers.home import home_of
from sparsewire.weights.readers.staged import Staged, way_of
from sparsewire.weights.readers.watch import Watch
from sparsewire.weights.sync.chain import check_version
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.loop import LoopThread
from sparsewire.weights.sync.subscription import Subscription
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.tensors import Tensor

TIMEOUT_S = 300.0


class Receiver:
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
        try:
            publisher = parse_address(address) if isinstance(address, str) else address
            door = _door(relay)
        except ValueError as error:
            raise InputError(str(error)) from None
        own_secret = secret_of(secret)
        self._about = described(name, site, mbits)
        self._coder = Coder(threads)
        self._base = OwnBase(home_of(base), self._coder)
        self._loop = LoopThread("weights receiver")
        self._subscription = self._loop.call(
            lambda: Subscription(publisher, own_secret, self._base, self._tell, door)
        )
        self._close = self.close
        close_at_exit(self._close)

    def _tell(self) -> Document:
        """What the publisher hears of this reader."""
        return {**self._about, "applied": self._base.version, "verified": self._base.verified}

    @property
    def version(self) -> int | None:
        """The version that was applied last; None before."""
        return self._base.version

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors of the base, by name; `as_torch` and `as_numpy` give views of them."""
        return self._base.home.tensors

    @property
    def relay(self) -> Address | None:
        """Where it listens to pass messages on."""
        return self._subscription.relay

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that came of what is being staged, and of how many; zeros between."""
        return self._subscription.progress

    def stage(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """Wait for a version newer than this one, or for `version`, and get it in full.

        It takes `timeout` seconds at most, 300 by default. What comes is deltas or the whole
        version, whatever has fewer bytes. Memory beside the message is a few chunks.

        Raises Timeout; AuthenticationError for another secret; MismatchError where the reader
        cannot take the version's tensors; DataError for a message that is damaged, even as the
        whole version; ProtocolError for answers of no publisher; Error where the publisher has no
        such version; ResourceError where there is no room.
        """
        self._check_open()
        return self._loop.run(self._staging(version, None, limit_of(timeout)))

    async def stage_async(self, version: int | None = None, timeout: float | None = None) -> Staged:
        """`stage` for an event loop. Cancelling it ends the wait."""
        self._check_open()
        return await self._loop.wait(self._staging(version, None, limit_of(timeout)))

    def watch(self, callback: Callable[[Staged], object]) -> Watch:
        """Call `callback` with each new version, staged, on a thread of its own, until `stop()`.

        It calls `verify` and `apply` when it suits the reader. A version that it leaves is skipped.
        What it raises is logged, and so are failures of the publisher or the network, and the
        watch goes on.
        """
        self._check_open()
        return Watch(self._loop, self._staging, callback)

    def status(self) -> Document:
        """What this reader has and passes on, as values of JSON."""
        have = self._base.have
        return {
            "name": self._about["name"],
            "publisher": str(self._subscription.address),
            "version": self._base.version,
            "verified": self._base.verified,
            "fingerprint": have.hex() if have else None,
            "relay": str(self.relay) if self.relay else None,
            "bytes_sent": self._subscription.bytes_sent,
        }

    async def _staging(self, version: int | None, above: int | None, limit: float) -> Staged:
        """Stage `version`, or one newer than both what is applied and `above`."""
        if version is not None:
            check_version(version)
        arrived = await self._subscription.obtain(version, above, limit)
        changed = dict.fromkeys(name for delta in arrived.deltas for name in delta.tensors)
        return Staged(*way_of([arrived]), list(changed), self._base.next(arrived), self._note)

    def _note(self) -> None:
        """Tell the publisher, soon, how far this reader is."""
        with contextlib.suppress(Error):  # It may be closed meanwhile.
            self._loop.call(self._subscription.note)

    def _check_open(self) -> None:
        if not self._loop.is_running:
            raise InputError("this receiver is closed: make a new one")

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the publisher; the weights stay as they are.

        An `apply` that is under way is waited for. What waits for a version raises Error, and what
        is staged can no longer be applied.
        """
        closes_now(self._close)
        if not self._loop.is_running:
            return
        self._loop.close()
        self._subscription.close()
        self._base.close()


def limit_of(timeout: float | None) -> float:
    """Seconds to wait; raises InputError for what are none."""
    if timeout is None:
        return TIMEOUT_S
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"timeout={timeout!r:.40} is no number of seconds")
    return timeout


def _door(relay: str | Address | None) -> socket.socket | None:
    if relay is None:
        return None
    return bind_door(*(parse_address(relay) if isinstance(relay, str) else relay))
