"""Several GPUs a host: the steps of their ranks inside the host, before and after the engine's.

Each rank gets the host's sum of a slice of the tensor. Then ranks with the same place on their
hosts reduce this slice over the network, and in the end each host puts its slices together again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._C._distributed_c10d import PrefixStore, Store

import sparsewire
from sparsewire.device.packing import BLOCK
from sparsewire.meeting.contact.sockets import host_identity

Connect = Callable[[Store, int, int], Any]
"""Makes a backend for the ranks of one host, from a store, a rank and the number of ranks."""


class Layout(NamedTuple):
    """This rank's host and its place there; all `hosts` have the same number of ranks, `places`."""

    host: int
    place: int
    hosts: int
    places: int


def layout_of(hosts: list[int], rank: int) -> Layout | None:
    """The layout by each rank's host; None for one host, hosts of one rank, or unequal hosts."""
    names = list(dict.fromkeys(hosts))
    counts = {hosts.count(name) for name in names}
    if len(names) < 2 or len(counts) > 1 or counts == {1}:
        return None
    place = hosts[:rank].count(hosts[rank])
    return Layout(names.index(hosts[rank]), place, len(names), counts.pop())


def meet(communicator: sparsewire.Communicator) -> Layout | None:
    """The layout of all ranks; collective."""
    return layout_of(numbers_of(communicator, host_identity()), communicator.rank)


def numbers_of(communicator: sparsewire.Communicator, name: str) -> list[int]:
    """Numbers for the names of all ranks, equal if the names are equal; collective."""
    digest = hashlib.sha256(name.encode()).digest()
    table = np.zeros(communicator.world_size, np.int64)
    table[communicator.rank] = int.from_bytes(digest[:7], "little")
    numbers: list[int] = communicator.all_reduce(table).tolist()
    return numbers


class HostLevel:
    """This rank's connections inside its host. All ranks make it together.

    Each direction has its own backend, since a thread of its own uses it.
    """

    def __init__(self, layout: Layout, store: Store, connect: Connect) -> None:
        self.layout = layout
        of_host = PrefixStore(f"host-{layout.host}", store)
        self._scatter, self._gather = (
            connect(PrefixStore(name, of_host), layout.place, layout.places)
            for name in ("scatter", "gather")
        )

    @property
    def backend(self) -> Any:
        """One of the two backends, for measuring."""
        return self._scatter

    def reduce_scatter(self, tensor: torch.Tensor) -> torch.Tensor:
        """The host's sum of this rank's slice, in new memory: whole blocks, zeros at the end."""
        places = self.layout.places
        length = -(-tensor.numel() // (places * BLOCK)) * BLOCK
        padded = tensor.new_zeros(places * length)
        padded[: tensor.numel()].view(tensor.shape).copy_(tensor)
        own = tensor.new_empty(length)
        self._scatter._reduce_scatter_base(own, padded).wait()
        return own

    def all_gather(self, own: torch.Tensor, tensor: torch.Tensor) -> None:
        """Write the slices of all ranks of the host to the tensor."""
        padded = own.new_empty(self.layout.places * own.numel())
        self._gather._allgather_base(padded, own).wait()
        tensor.copy_(padded[: tensor.numel()].view(tensor.shape))

    def abort(self) -> None:
        """Fail the calls in flight of backends that can."""
        for backend in (self._scatter, self._gather):
            backend.abort()

    def shutdown(self) -> None:
        """Close all connections."""
        for backend in (self._scatter, self._gather):
            backend.shutdown()
