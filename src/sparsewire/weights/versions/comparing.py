"""Compares a tensor with that of the version before, and writes what changed to a message."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire.weights.versions.coding import Coder
from sparsewire.weights.versions.message import Writer
from sparsewire.weights.versions.tensors import Tensor, check_alike


class Compared(NamedTuple):
    """How many elements changed, and the checksum of the new tensor."""

    changed: int
    checksum: bytes


def compare(
    name: str, base: Tensor | None, fresh: Tensor, coder: Coder, writer: Writer
) -> Compared:
    """Write the codes of `fresh` over `base`, which a new tensor has not: then it is None.

    Raises MismatchError where dtype or shape changed, and OSError.
    """
    if base:
        check_alike(name, base, fresh)
    summed = coder.checksum(fresh)
    changed = writer.add(name, coder.encode(base, fresh), summed.result, is_new=base is None)
    return Compared(changed, summed.result())
