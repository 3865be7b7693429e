"""Parcels from every member to every other, each its own: a reduce_scatter of the engine, in which
all members' rows have places of their own, so that nothing is added and nothing is sent twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.sparse_vector import SparseVector
from sparsewire.torch.outer.sums.parcel import Parcel, wrap


def all_to_all(
    communicator: Communicator, parcels: Sequence[Parcel], rows: int, timeout: float
) -> list[SparseVector]:
    """Give parcel r to rank r; for `unwrap`, the rows of what each rank gave to this one.

    `rows` limits a parcel, alike on all members. Raises the engine's errors.
    """
    members = communicator.world_size
    shelf = members * rows
    wrapped = [wrap(parcel, rows) for parcel in parcels]
    places = [
        each.indices + (taker * shelf + communicator.rank * rows)
        for taker, each in enumerate(wrapped)
    ]
    values = np.concatenate([each.values for each in wrapped])
    sent = SparseVector(np.concatenate(places), values, members * shelf)
    return _by_sender(communicator.reduce_scatter(sent, timeout=timeout), members, rows)


def _by_sender(shelf: SparseVector, members: int, rows: int) -> list[SparseVector]:
    borders = np.searchsorted(shelf.indices, np.arange(members + 1) * rows)
    return [
        SparseVector(shelf.indices[begin:end] - rank * rows, shelf.values[begin:end], rows)
        for rank, (begin, end) in enumerate(pairwise(borders))
    ]
