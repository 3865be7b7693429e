"""A version that a reader has in full, and has not applied yet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from sparsewire.errors import InputError
from sparsewire.weights.sync.subscription import Arrived


class Stage(Enum):
    """How far a staged version is."""

    STAGED = "staged"
    VERIFIED = "verified"
    APPLIED = "applied"


class Way(NamedTuple):
    """How a version came: by `messages`, of `nbytes` together, of which `nbytes_from_relays` came
    from other readers. The whole version alone would have been `whole_nbytes`, packed."""

    messages: int
    nbytes: int
    nbytes_from_relays: int
    whole_nbytes: int
    is_whole: bool


class Seconds(NamedTuple):
    """How long a version took at a reader: waiting until the publisher told of it, fetching its
    messages, and in `verify` and `apply`. Only `applying` stops the reader's work."""

    waiting: float
    fetching: float
    verifying: float = 0.0
    applying: float = 0.0

    @property
    def staging(self) -> float:
        """Until all messages were there."""
        return self.waiting + self.fetching


Standing = tuple[int | None, bytes | None]
"""The version that a reader has, by its number and by its fingerprint; None where not known."""


class Following(Protocol):
    """The next version of what a reader has."""

    def verify(self) -> None:
        """Find all new bits, and check them; nothing changes."""

    def apply(self, model: Any) -> None:
        """Write them, also to `model`."""


class Staged:
    """One version at a reader: `verify` finds all new bits, `apply` writes them.

    `version` is its number, `way` how it came, `changed` the names of tensors that change, and
    `seconds` tells how long each part took.
    """

    def __init__(
        self,
        version: int,
        way: Way,
        seconds: Seconds,
        changed: list[str],
        following: Following,
        note: Callable[[], None],
    ) -> None:
        """A `Receiver` makes it; `note` is called as it moves on."""
        self.version = version
        self.way = way
        self.seconds = seconds
        self.changed = changed
        self.stage = Stage.STAGED
        self._following = following
        self._note = note

    @property
    def nbytes(self) -> int:
        """Bytes that came for it."""
        return self.way.nbytes

    def verify(self) -> Staged:
        """Find all new bits on a copy, chunk by chunk, and check the checksum of each tensor.

        It runs beside the reader's work. The weights stay as they are. Returns itself. Raises
        MismatchError if they are not this version's base, DataError for a damaged message, and
        InputError if another version was applied meanwhile, if a model's tensors were replaced
        since the receiver was made, or if that is closed.
        """
        if self.stage is Stage.STAGED:
            begin = time.perf_counter()
            self._following.verify()
            self.seconds = self.seconds._replace(verifying=time.perf_counter() - begin)
            self.stage = Stage.VERIFIED
            self._note()
        return self

    def apply(self, model: Any = None) -> Staged:
        """Make the reader's base this version, in place; and `model`, if one is given.

        Only elements that change are written, so it is short if `verify` was called before;
        otherwise it calls it. `model` is a module or mapping with the same tensors, or the base
        itself. Where it is at another version, its tensors are written whole. Returns itself.

        Raises what `verify` does, and then nothing has changed; InputError if it was applied.
        """
        if self.stage is Stage.APPLIED:
            raise InputError(f"version {self.version} was applied already")
        self.verify()
        begin = time.perf_counter()
        self._following.apply(model)
        self.seconds = self.seconds._replace(applying=time.perf_counter() - begin)
        self.stage = Stage.APPLIED
        self._note()
        return self

    async def verify_async(self) -> Staged:
        """`verify` on a thread of its own."""
        return await asyncio.to_thread(self.verify)

    async def apply_async(self, model: Any = None) -> Staged:
        """`apply` on a thread of its own; nobody may read the weights meanwhile."""
        return await asyncio.to_thread(self.apply, model)


def way_of(arrived: Sequence[Arrived]) -> tuple[int, Way, Seconds]:
    """The version that arrived from one publisher or several, its way, and the time that took."""
    plans = [each.plan for each in arrived]
    way = Way(
        max(len(plan.entries) for plan in plans),
        sum(entry.size for plan in plans for entry in plan.entries),
        sum(each.bytes_from_relays for each in arrived),
        sum(plan.whole_nbytes for plan in plans),
        any(plan.entries and not plan.is_delta for plan in plans),
    )
    waiting = max(each.waiting_s for each in arrived)
    return plans[0].version, way, Seconds(waiting, max(each.fetching_s for each in arrived))


def check_standing(now: object, staged_over: object, version: int) -> None:
    """Raise InputError where another version was applied since `version` was staged, by whatever
    thread."""
    if now != staged_over:
        raise InputError(
            f"version {version} was staged over another version than the one that is here now: "
            "stage it again"
        )
