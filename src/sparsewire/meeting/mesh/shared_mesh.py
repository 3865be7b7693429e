"""The meshes of this process, shared by groups of the same ranks. The last one closes a mesh."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sparsewire._core import Mesh as Core
from sparsewire.lifetime import disown_in_child, forget_in_child
from sparsewire.meeting.mesh.porter import Porter
from sparsewire.options import Options

_open: list[SharedMesh] = []
_lock = threading.Lock()


class Terms(NamedTuple):
    """The settings that two groups must have in common to share connections."""

    lanes: int | None
    peer_timeout: float
    shared_memory: bool
    memory: int
    secret: bytes


def terms_of(options: Options) -> Terms:
    return Terms(
        options.lanes,
        options.peer_timeout,
        options.shared_memory,
        options.memory,
        options.secret,
    )


class SharedMesh:
    """One mesh. It is open while somebody holds it; its maker is the first holder."""

    def __init__(
        self,
        identity: str,
        rank: int,
        world_size: int,
        lanes: int,
        terms: Terms,
        core: Core,
        make_porter: Callable[[], Porter],
    ) -> None:
        """`identity` is the same on all ranks of this mesh, and no other mesh has it."""
        self.identity = identity
        self.rank = rank
        self.lanes = lanes
        self.connections_most = world_size * lanes
        self.core = core
        self._terms = terms
        self._holders = 1
        try:
            self._porter = make_porter()
        except BaseException:
            core.close()
            raise
        disown_in_child(self)
        self._porter.start()
        with _lock:
            _open.append(self)

    def release(self) -> None:
        """Close the mesh where nobody else holds it."""
        with _lock:
            self._holders -= 1
            if self._holders > 0 or self not in _open:
                return
            _open.remove(self)
        self._porter.close()
        self.core.close()

    def disown(self) -> None:
        """In a forked child: leave the connections to the parent."""
        self.core.disown()
        self._holders = 0

    def fits(self, terms: Terms) -> bool:
        return self._terms == terms and self.core.is_whole()

    def hold(self) -> SharedMesh:
        """Keep a mesh open that is held already, until another `release`."""
        with _lock:
            self._holders += 1
        return self


@contextmanager
def fitting(terms: Terms) -> Iterator[list[SharedMesh]]:
    """The meshes that a group with such terms may share, held meanwhile."""
    with _lock:
        meshes = [mesh for mesh in _open if mesh.fits(terms)]
        for mesh in meshes:
            mesh._holders += 1
    try:
        yield meshes
    finally:
        for mesh in meshes:
            mesh.release()


def connections_most() -> int:
    """How many the meshes of this process may have, once each rank is connected on each lane."""
    with _lock:
        return sum(mesh.connections_most for mesh in _open)


def connections() -> list[int]:
    """The number of connected ranks of each mesh of this process."""
    with _lock:
        return [mesh.core.connections() for mesh in _open]


def _forget() -> None:
    """In a forked child: forget the meshes, which are the parent's."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


forget_in_child(_forget)
