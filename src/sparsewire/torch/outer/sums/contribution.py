"""A member's own contribution to a round: coded before the collectives, judged after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.torch.outer.sums.parcel import Kind, Parcel
from sparsewire.torch.outer.sums.sums import Vector


@dataclass(frozen=True)
class Contribution:
    """The code of a member's vector, and the parcel of it; or why there is none.

    A member that cannot encode must still take part in the collectives that others have begun.
    """

    parcel: Parcel
    code: Any = None
    error: CompressError | None = None

    def check(self) -> None:
        """Raise the error for which there is no code."""
        if self.error is not None:
            raise self.error


def contribution(
    operator: Compressor, vector: Vector | None, draws: Draws, parameters: Vector | None = None
) -> Contribution:
    """What `operator` makes of a vector, an update of `parameters`; None makes nothing."""
    if vector is None:
        return Contribution(Parcel())
    try:
        if parameters is not None:
            operator.follow(parameters)
        code = operator.code(vector, draws)
        return Contribution(Parcel(Kind.CONTRIBUTION, operator.pack(code)), code)
    except CompressError as error:
        return Contribution(Parcel(Kind.FAILURE), error=error)


def add_parcel(parcel: Parcel, sender: int, operator: Compressor, total: Vector) -> bool:
    """Add what rank `sender` contributed to `total`; returns whether it did.

    Raises CompressError if it failed, or if its message is malformed.
    """
    if parcel.kind is Kind.FAILURE:
        raise CompressError(f"rank {sender} could not encode its vector: see the error there")
    if parcel.kind is Kind.NOTHING:
        return False
    try:
        operator.add(operator.read(parcel.message), total)
    except CompressError as error:
        raise CompressError(f"rank {sender}: {error}") from error
    return True
