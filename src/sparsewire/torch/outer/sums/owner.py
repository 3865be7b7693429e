"""The owner of a part: it adds up what all members contributed to it, and gives back one message.

What this message loses is owed: it is added to the next round's sum. With the members' own
residuals that is error feedback in both directions (Tang et al., DoubleSqueeze, ICML 2019, arXiv
1905.05957)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.compress.message import Reader, number_bytes
from sparsewire.sparse_vector import SparseVector
from sparsewire.torch.outer.sums.contribution import add_parcel
from sparsewire.torch.outer.sums.parcel import Kind, Parcel, unwrap
from sparsewire.torch.outer.sums.sums import Vector


class Owner:
    """Takes messages of `up`, answers with one of `down`, and keeps what it owes of the part.

    Both operators are for vectors of the part's size.
    """

    def __init__(self, up: Compressor, down: Compressor, draws: Draws) -> None:
        self._up = up
        self._down = down
        self._draws = draws
        self._owed_next: Vector | None = None
        self.owed: Vector = np.zeros(down.dimension, np.float32)
        """What earlier answers lost, shape (elements of the part,)."""

    def answer(self, received: Sequence[SparseVector]) -> Parcel:
        """The parcel for all members, of the rows that came from each rank.

        Of a contribution that failed or is malformed, the answer is that the owner failed.
        """
        self._owed_next = None
        try:
            return Parcel(Kind.CONTRIBUTION, self._sum(received))
        except CompressError as error:
            return Parcel(Kind.FAILURE, str(error).encode())

    def _sum(self, received: Sequence[SparseVector]) -> bytes:
        total = np.zeros_like(self.owed)
        contributors = 0
        for rank, rows in enumerate(received):
            contributors += add_parcel(unwrap(rows, rank), rank, self._up, total)
        if not contributors:
            return number_bytes(0)
        code = self._down.code_of_sum(total, self.owed, self._draws)
        # Before the sum changes, because a code may be the sum itself.
        message = number_bytes(contributors) + self._down.pack(code)
        self._down.add(code, total, -1.0)
        self._owed_next = total
        return message

    def commit(self) -> None:
        """The last answer counts."""
        if self._owed_next is not None:
            self.owed = self._owed_next
        self._owed_next = None

    def abort(self) -> None:
        """The last answer does not count."""
        self._owed_next = None


def add_answer(parcel: Parcel, owner: int, down: Compressor, total: Vector) -> int:
    """Add the answer of the rank that owns a part to `total`, of the part; returns contributors.

    Raises CompressError if the owner failed, or if its answer is malformed.
    """
    if parcel.kind is Kind.FAILURE:
        why = parcel.message.decode(errors="replace")
        raise CompressError(f"rank {owner} could not add up its part: {why}")
    try:
        reader = Reader(parcel.message)
        contributors = reader.number()
        if contributors:
            down.add(down.read(reader.rest()), total)
        reader.end()
    except CompressError as error:
        raise CompressError(f"rank {owner}, of its part: {error}") from error
    return contributors
