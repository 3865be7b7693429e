"""A method that a workload is measured with: how gradients are averaged, and in which form."""

from __future__ import annotations

from dataclasses import dataclass

from sparsewire.tools.training.trial import Averaging

_SPARSE = "-sparse"
FEEDBACK = "feedback/block-top-k:0.01"
"""The hook that "feedback" stands for here: 1% of the blocks."""


@dataclass(frozen=True)
class Method:
    """`sparse`: tables are made with `sparse=True`, so that their gradients are sparse tensors."""

    averaging: Averaging
    sparse: bool = False

    @classmethod
    def parse(cls, text: str) -> Method:
        """Read what `Averaging.parse` takes, or a backend with "-sparse" behind it.

        Raises ValueError for other names, CompressError, which is one, for unknown operators.
        """
        dense = text.removesuffix(_SPARSE)
        return cls(Averaging.parse(FEEDBACK if dense == "feedback" else dense), dense != text)

    def __str__(self) -> str:
        return f"{self.averaging}{_SPARSE if self.sparse else ''}"

    @property
    def compresses(self) -> bool:
        """Whether a step may differ from that of gradients averaged in full."""
        return bool(self.averaging.operators)
