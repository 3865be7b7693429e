"""What a reader has: its weights, which version they are, and how the next one is written."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sparsewire.weights.readers.home import Home, home_of
from sparsewire.weights.readers.preparing import Prepared, prepare
from sparsewire.weights.readers.staged import Standing, check_standing
from sparsewire.weights.sync.subscription import Arrived
from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.fingerprint import Described, fingerprint
from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.safetensors import Span
from sparsewire.weights.versions.spool import memory


class OwnBase:
    """All tensors of a version, in one place, with their checksums."""

    def __init__(self, home: Home, coder: Coder) -> None:
        self.home = home
        self._coder = coder
        self._busy = threading.Lock()
        self._sums: dict[str, bytes] = {}
        self._served: tuple[Any, int] | None = None
        self.version: int | None = None
        self.verified: int | None = None
        self.have: bytes | None = None
        self.digest = ""
        self.chain = ""

    def meet(self, names: Sequence[str], digest: str) -> None:
        """Learn what the publisher's tensors are called, and find the fingerprint of those here."""
        own = {name: tensor for name in names if (tensor := self.home.tensors.get(name))}
        missing = {name: tensor for name, tensor in own.items() if name not in self._sums}
        found = self._coder.checksums(missing.values())
        self._sums |= dict(zip(missing, found, strict=True))
        self.have = fingerprint(own, self._sums) if len(own) == len(names) else None
        self.digest = digest

    def check(self, spans: Mapping[str, Span]) -> None:
        """Raise MismatchError where these tensors cannot be taken."""
        self.home.check(spans)

    def next(self, arrived: Sequence[Arrived]) -> Next:
        """The version that arrived from its only publisher, over the one that is here."""
        (only,) = arrived
        return Next(self, only)

    @property
    def standing(self) -> Standing:
        return self.version, self.have

    def prepare(self, arrived: Arrived, over: Standing) -> Prepared:
        """Find what makes it the version that arrived while it was `over`; see `Next`."""
        with self._busy:
            self._check(arrived, over)
            deltas = arrived.deltas
            found = Prepared()
            if deltas:
                found = prepare(deltas, self.home, self._sums, self._coder, memory)
            self.verified = arrived.plan.version
            return found

    def apply(self, arrived: Arrived, over: Standing, prepared: Prepared, model: Any) -> None:
        """Make it the version that arrived while it was `over`; see `Next`."""
        with self._busy:
            self._check(arrived, over)
            other = None if model is None else self._other(model, arrived.deltas)
            self._write(arrived, prepared)
            if other:
                self._bring(other, model, prepared)
            self.version, self.chain = arrived.plan.version, arrived.plan.chain
            self._served = (model, self.version) if other else None

    def _check(self, arrived: Arrived, over: Standing) -> None:
        self._coder.check_open()
        check_standing(self.standing, over, arrived.plan.version)

    def close(self) -> None:
        """End its coder, once what is under way is done, and let go of its home."""
        with self._busy:
            self._coder.close()
            self.home.close()

    def _write(self, arrived: Arrived, prepared: Prepared) -> None:
        """Make the base the version. If it fails half-way, its bits are unknown from then on, and
        the next version comes whole."""
        sums, digest = self._sums, self.digest
        self.have, self._sums, self.digest = None, {}, ""
        self.home.begin()
        prepared.write(self.home, self._coder)
        self.home.finish(arrived.deltas, arrived.plan.version)
        kept = {name: each for name, each in sums.items() if name not in prepared.removed}
        self.have, self._sums, self.digest = arrived.plan.made, kept | prepared.sums, digest

    def _other(self, model: Any, deltas: Sequence[Delta]) -> Home | None:
        """The home of a model, if it is another one than the base."""
        home = home_of(model)
        mine = self.home.tensors
        wanted: Mapping[str, Described] = deltas[-1].spans() if deltas else mine
        home.check({name: each for name, each in wanted.items() if name in home.tensors})
        is_same = all(
            name in mine and mine[name].data.ctypes.data == tensor.data.ctypes.data
            for name, tensor in home.tensors.items()
            if len(tensor.data)
        )
        return None if is_same else home

    def _bring(self, home: Home, model: Any, prepared: Prepared) -> None:
        """Make a model beside the base the same version: by what changes if it was given last."""
        names = list(self.home.tensors)
        if self._served and self._served[0] is model and self._served[1] == self.version:
            prepared.write_changes(home, self._coder)
            names = list(prepared.fresh)
        for name in names:
            if name in home.tensors:
                home.tensors[name].data[:] = self.home.tensors[name].data


class Next:
    """The next version of a base, as `Staged` verifies and applies it."""

    def __init__(self, base: OwnBase, arrived: Arrived) -> None:
        self._base = base
        self._arrived = arrived
        self._over = base.standing
        self._prepared = Prepared()

    def verify(self) -> None:
        self._prepared = self._base.prepare(self._arrived, self._over)

    def apply(self, model: Any) -> None:
        self._base.apply(self._arrived, self._over, self._prepared, model)
