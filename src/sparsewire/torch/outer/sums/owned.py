"""Sums on the way: each member owns a part of the vector, adds up all contributions to it, and
gives its sum to all as one message. So bytes down do not grow with the number of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsewire.collectives.communicator import Communicator
from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.errors import MismatchError
from sparsewire.sparse_vector import SparseVector
from sparsewire.torch.outer.sums.contribution import Contribution, contribution
from sparsewire.torch.outer.sums.exchange import all_to_all
from sparsewire.torch.outer.sums.owner import Owner, add_answer
from sparsewire.torch.outer.sums.parcel import Parcel, most_rows, unwrap, wrap
from sparsewire.torch.outer.sums.parts import CHUNK, EXACT, MakeOperator, maker_of, parts_of
from sparsewire.torch.outer.sums.sums import Added, Sums, Vector


@dataclass(frozen=True)
class Layout:
    """The parts of a vector among the members that there are, in rank order; some may be empty."""

    rank: int
    parts: list[slice]
    up: list[Compressor | None]
    """Operators of contributions, None for empty parts."""
    down: list[Compressor | None]
    """Operators of sums, likewise."""
    owner: Owner | None
    """This member as the owner of its part."""
    rows: int
    """The limit of a parcel."""

    @property
    def own(self) -> slice:
        """The part of this member."""
        return self.parts[self.rank]


class Owned(Sums):
    """Contributions are messages of `operator`, and sums of `down`; both are made for each part.

    With `down` "exact", sums are the bits of the contributions' sum. Any other `down` loses some
    of it, which the owner owes until the next round: that changes the training, so it is only used
    if it was asked for. What operators do must not cross borders of `chunk` elements, else the
    parts are not coded as the whole vector would be, which is no error.
    """

    def __init__(
        self,
        elements: int,
        operator: str | MakeOperator,
        draws: Draws,
        down: str | MakeOperator = EXACT,
        chunk: int = CHUNK,
    ) -> None:
        super().__init__(elements)
        self._up = maker_of(operator)
        self._down = maker_of(down)
        self._draws = draws
        self._chunk = chunk
        self._layout: Layout | None = None

    def run(self, communicator: Communicator, vector: Vector | None, timeout: float) -> Added:
        layout = self._laid(communicator)
        own = self._contributions(layout, vector)
        parcels = [each.parcel for each in own]
        received = all_to_all(communicator, parcels, layout.rows, timeout)
        answer = layout.owner.answer(received) if layout.owner else Parcel()
        answers = communicator.all_gather(wrap(answer, layout.rows), timeout=timeout)
        for each in own:
            each.check()
        total, contributors = self._added(layout, answers)
        sent = None if vector is None else [each.code for each in own]
        return Added(total, sent, contributors)

    def _laid(self, communicator: Communicator) -> Layout:
        """The layout for a communicator, which must be of the membership of the last run."""
        place = communicator.rank, communicator.world_size
        if self._layout is None:
            self._layout = self._layout_of(*place)
        if place != (self._layout.rank, len(self._layout.parts)):
            raise MismatchError("the membership has changed since the last round: call reset()")
        return self._layout

    def _layout_of(self, rank: int, members: int) -> Layout:
        parts = parts_of(self.elements, members, self._chunk)
        sizes = [part.stop - part.start for part in parts]
        up = [self._up(size) if size else None for size in sizes]
        down = [self._down(size) if size else None for size in sizes]
        own = up[rank], down[rank]
        owner = Owner(own[0], own[1], self._draws) if own[0] and own[1] else None
        return Layout(rank, parts, up, down, owner, most_rows(max(sizes)))

    def _contributions(self, layout: Layout, vector: Vector | None) -> Sequence[Contribution]:
        """What this member gives to each owner: if it cannot code one part, that it failed."""
        own = [
            contribution(operator, _part(vector, part), self._draws, _part(self._parameters, part))
            if operator
            else Contribution(Parcel())
            for operator, part in zip(layout.up, layout.parts, strict=True)
        ]
        failed = [each for each in own if each.error]
        return failed[:1] * len(own) if failed else own

    def _added(self, layout: Layout, answers: list[SparseVector]) -> tuple[Vector, int]:
        total = self._zeros()
        contributors = set()
        for rank, (rows, down) in enumerate(zip(answers, layout.down, strict=True)):
            if down is not None:
                part = total[layout.parts[rank]]
                contributors.add(add_answer(unwrap(rows, rank), rank, down, part))
        if len(contributors) != 1:
            raise CompressError(f"owners count different contributors: {sorted(contributors)}")
        return total, contributors.pop()

    def take_off(self, sent: Any, residual: Vector) -> None:
        assert self._layout, "it was sent before the membership changed"
        for operator, part, code in zip(self._layout.up, self._layout.parts, sent, strict=True):
            if operator is not None:
                operator.add(code, residual[part], -1.0)

    def commit(self) -> None:
        if self._layout and self._layout.owner:
            self._layout.owner.commit()

    def abort(self) -> None:
        if self._layout and self._layout.owner:
            self._layout.owner.abort()

    @property
    def owed(self) -> float:
        """The norm of what this member owes as an owner."""
        owner = self._layout and self._layout.owner
        return float(np.linalg.norm(owner.owed)) if owner else 0.0

    def reset(self, residual: Vector | None = None) -> float:
        layout, lost = self._layout, self.owed
        self._layout = None
        if residual is None or layout is None or layout.owner is None:
            return lost
        residual[layout.own] += layout.owner.owed
        return 0.0


def _part(vector: Vector | None, part: slice) -> Vector | None:
    return None if vector is None else vector[part]
