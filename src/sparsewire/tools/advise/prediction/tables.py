"""Parameters that look like embeddings: what becomes of a timeline if they go as sparse tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparsewire.profile.records.recorded import Recorded
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.parameters import Seen
from sparsewire.tools.advise.prediction.rows import row_costs
from sparsewire.tools.advise.prediction.timeline import Pass, Timeline


def with_sparse_tables(timeline: Timeline, tables: Sequence[Seen], recorded: Recorded) -> Timeline:
    """Each table goes by itself when its bucket would have gone."""
    parts: list[list[Gradient]] = []
    for gradient, numbers in zip(timeline.gradients, timeline.members, strict=True):
        inside = [table for table in tables if table.number in numbers]
        parts.append(list(_parts(gradient, inside, recorded)) if inside else [gradient])
    passes = tuple(_spread(each, parts) for each in timeline.passes)
    gradients = tuple(part for of_bucket in parts for part in of_bucket)
    return replace(timeline, passes=passes, gradients=gradients, members=())


def _spread(recorded: Pass, parts: Sequence[Sequence[Gradient]]) -> Pass:
    pairs = zip(recorded.ready, parts, strict=True)
    return replace(recorded, ready=tuple(at for at, of_bucket in pairs for _ in of_bucket))


def _parts(gradient: Gradient, tables: Sequence[Seen], recorded: Recorded) -> Iterator[Gradient]:
    for table in tables:
        row_bytes = table.shape[1] * gradient.item_bytes
        yield replace(
            gradient,
            payload=table.size * gradient.item_bytes,
            blocks=gradient.blocks.of_density(table.blocks, 0.0),
            elements=_rows(gradient, table, len(recorded.ranks)),
            parameters=(table.size,),
            row_bytes=row_bytes,
            row_costs=row_costs(recorded, table.number, row_bytes, table.optimizer),
        )
    left = gradient.count - sum(table.size for table in tables)
    if left > 0:
        yield _rest(gradient, tables, left)


def _rows(gradient: Gradient, table: Seen, ranks: int) -> Overlap:
    """Unions of rows as they were recorded; where they were not, they grow as the bucket's."""
    if table.union_rows is not None:
        return table.union_of(ranks)
    return gradient.elements.of_density(table.rows, 0.0)


def _rest(gradient: Gradient, tables: Sequence[Seen], left: float) -> Gradient:
    """The rest of a bucket beside its tables, with the density that makes up the whole."""

    def without(overlap: Overlap, in_tables: float) -> Overlap:
        density = (overlap.union(1) * gradient.count - in_tables) / left
        density = min(max(density, 0.0), 1.0)
        return overlap.of_density(density, min(1.0, overlap.full * gradient.count / left))

    sizes = list(gradient.parameters)
    for table in tables:
        sizes.remove(table.size)
    return replace(
        gradient,
        payload=left * gradient.item_bytes,
        blocks=without(gradient.blocks, sum(t.size * t.blocks for t in tables)),
        elements=without(gradient.elements, sum(t.size * t.elements for t in tables)),
        parameters=tuple(sizes),
    )
