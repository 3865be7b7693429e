"""What a bucket has for the wire: its size, and how dense it is on a rank and on all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparsewire.advise import costs
from sparsewire.advise.density import Overlap, element_share


@dataclass(frozen=True)
class Gradient:
    """Of one bucket, or of a part of it; `blocks` and `elements` tell how dense unions are.

    `payload` is the bytes of all elements, `parameters` how many elements each parameter has.
    `row_bytes` is how many bytes a row has where the gradient is a sparse tensor, else None.
    """

    payload: float
    item_bytes: int
    blocks: Overlap
    elements: Overlap
    parameters: tuple[int, ...]
    row_bytes: float | None = None

    @property
    def count(self) -> float:
        """Elements."""
        return self.payload / self.item_bytes

    @property
    def is_scanned(self) -> bool:
        """Whether the engine looks for zeros: it does not where a sample finds few."""
        is_dense = (
            self.blocks.union(1) >= costs.DENSE_BLOCKS
            and self.elements.union(1) >= costs.DENSE_ELEMENTS
        )
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
        """With unions that grow otherwise with the number of ranks."""
        return replace(self, blocks=self.blocks.grown(by), elements=self.elements.grown(by))
