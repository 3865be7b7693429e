"""Sums that the engine makes: whether they are finite, and who contributes."""

from __future__ import annotations

import numpy as np

from sparsewire._core import first_not_finite
from sparsewire.collectives.communicator import Communicator
from sparsewire.errors import CompressError
from sparsewire.torch.outer.sums.sums import Vector
from sparsewire.work import Work


def check_sum(total: Vector) -> Vector:
    """`total`; raises CompressError, on all members alike, if the sum is not finite."""
    index = first_not_finite(total)
    if index < total.size:
        raise CompressError(f"element {index} of the sum is {total[index]}: the round fails")
    return total


class Roll:
    """How many members contribute to a round, and how many failed; told beside the sum."""

    def __init__(self, communicator: Communicator, contributes: bool, failed: bool, timeout: float):
        self._counts = np.array([contributes, failed], np.int32)
        self._work: Work = communicator.all_reduce(self._counts, async_op=True, timeout=timeout)

    def contributors(self) -> int:
        """The number of contributors; raises CompressError, on all members, if one failed."""
        self._work.wait()
        contributors, failed = map(int, self._counts)
        if failed:
            raise CompressError(
                f"{failed} members could not encode their vectors: see the errors there"
            )
        return contributors
