"""Random pairs in place of all members: each round, a member adds up with one other alone.

The gossip of NoLoCo (arXiv 2506.10911): bytes and additions do not grow with the number of members.
"""

from __future__ import annotations

from typing import Any

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import Compressor, Draws
from sparsewire.torch.outer.sums.contribution import add_parcel, contribution
from sparsewire.torch.outer.sums.exchange import all_to_all
from sparsewire.torch.outer.sums.parcel import Parcel, most_rows, unwrap
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector
from sparsewire.torch.outer.sums.whole import check_sum


def partners(members: int, number: int, seed: int) -> list[int]:
    """Rank by rank the partner in round `number`, drawn alike by all.

    One of an odd number of members has itself as its partner, and is alone.
    """
    order = Draws(seed, name=f"pairs of round {number}").generator.permutation(members)
    found = list(range(members))
    for one, other in zip(order[0::2], order[1::2], strict=False):
        found[one], found[other] = int(other), int(one)
    return found


class Pairs(Sums):
    """Messages of `operator` between partners; `seed` is alike on all members.

    A sum is that of a pair, whose members have the same bits, and others have others. Rounds are
    counted from 0 on, those that do not count, too, and again from 0 after `reset`; a pair
    may add up several vectors by as many objects of the same seed, which must run equally often.
    """

    def __init__(self, operator: Compressor, draws: Draws, seed: int = 0) -> None:
        super().__init__(operator.dimension)
        self._operator = operator
        self._draws = draws
        self._seed = seed
        self._round = 0
        self._rows = most_rows(self.elements)

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        rank = communicator.rank
        partner = partners(communicator.world_size, self._round, self._seed)[rank]
        own = contribution(self._operator, vector, self._draws, self._parameters)
        parcels = [Parcel()] * communicator.world_size
        parcels[partner] = own.parcel
        received = all_to_all(communicator, parcels, self._rows, timeout)
        own.check()
        pair = {rank: own.parcel, partner: unwrap(received[partner], partner)}
        total, contributors = self._added(pair)
        return Added(total, own.code, contributors)

    def _added(self, parcels: dict[int, Parcel]) -> tuple[Vector, int]:
        total = self._zeros()
        contributors = sum(
            add_parcel(parcel, rank, self._operator, total)
            for rank, parcel in sorted(parcels.items())
        )
        return check_sum(total), contributors

    def take_off(self, sent: Any, residual: Vector) -> None:
        self._operator.add(sent, residual, -1.0)

    def commit(self) -> None:
        self._round += 1

    def abort(self) -> None:
        self._round += 1

    def reset(self, residual: Vector | None = None) -> float:
        self._round = 0
        return 0.0
