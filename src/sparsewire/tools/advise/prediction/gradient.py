"""A bucket as the wire sees it: its size, and its density on a rank and on all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparsewire._core import DENSE_BLOCKS, DENSE_ELEMENTS
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.density import Overlap, element_share
from sparsewire.tools.advise.prediction.rows import RowCosts


@dataclass(frozen=True)
class Gradient:
    """The gradient of a bucket, or of a part of it.

    `blocks` and `elements` tell how dense unions are.

    `payload` is the bytes of all elements, `parameters` how many elements each parameter has.
    Where the gradient is a sparse tensor, `row_bytes` is how many bytes a row has, `elements` tells
    of rows, and `row_costs` what they take.
    """

    payload: float
    item_bytes: int
    blocks: Overlap
    elements: Overlap
    parameters: tuple[int, ...]
    row_bytes: float | None = None
    row_costs: RowCosts | None = None

    @property
    def count(self) -> float:
        """Elements."""
        return self.payload / self.item_bytes

    def rows(self, ranks: float) -> float:
        """Rows of a sparse tensor in the union of `ranks`."""
        return self.payload * self.elements.union(ranks) / (self.row_bytes or self.payload)

    def coalesce_s(self, rows: float) -> float:
        """Seconds of a processor to sort rows of a sparse tensor, and to add up equal ones."""
        return self.row_costs.coalesce.of(rows) if self.row_costs else 0.0

    @property
    def is_scanned(self) -> bool:
        """Whether the engine looks for zeros: it does not where a sample finds few."""
        is_dense = self.blocks.union(1) >= DENSE_BLOCKS and self.elements.union(1) >= DENSE_ELEMENTS
        return self.row_bytes is None and not is_dense

    def sent_share(self, ranks: int, by_element: bool) -> float:
        """The share of the bytes that the union of so many ranks needs, positions included.

        By element, where that is less than by block; sparse tensors go by row either way.
        """
        blocks, elements = self.blocks.union(ranks), self.elements.union(ranks)
        if self.row_bytes is not None:
            return elements * (1 + costs.ROW_BYTES / self.row_bytes)
        return min(blocks, element_share(elements, self.item_bytes)) if by_element else blocks

    def grown(self, by: float) -> Gradient:
        """Changes how unions grow with the number of ranks."""
        return replace(self, blocks=self.blocks.grown(by), elements=self.elements.grown(by))
