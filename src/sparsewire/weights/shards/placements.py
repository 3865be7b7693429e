"""The parts of a model that this rank holds, read from the placements of PyTorch's DTensors.

So every rank of FSDP2 or tensor parallelism publishes what it has, and nobody gathers the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from sparsewire.errors import DataError
from sparsewire.weights.shards.places import Part, Place

Spans = tuple[tuple[int, int], ...]
"""Ranges of one dimension, from begin to end, ascending and apart from each other."""


class Cut(NamedTuple):
    """How one dimension of a mesh divides a dimension of a tensor among its `ranks`.

    In `pieces` that are divided each by itself, as FSDP2 does beside tensor parallelism.
    """

    ranks: int
    pieces: int = 1


def own_parts(weights: Any, mesh: Any = None) -> Iterator[tuple[str, Any]]:
    """Pairs to publish of a module, a state_dict, or an iterable of pairs: the parts of this rank.

    Data are tensors on their device; see `parts_of` for `mesh` and errors.
    """
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    items: Iterable[Any] = weights.items() if isinstance(weights, Mapping) else weights
    for name, tensor in items:
        for each in parts_of(name, tensor, mesh):
            yield each.item


def own_weights(weights: Any, mesh: Any = None) -> Any:
    """What this rank publishes: the weights, and if they are divided among ranks, or if there is a
    `mesh`, the parts of this rank. Raises DataError."""
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        return weights if mesh is None else own_parts(weights, mesh)
    is_divided = mesh is not None or any(_is_distributed(each) for each in weights.values())
    return dict(own_parts(weights, mesh)) if is_divided else weights


def parts_of(name: str, tensor: Any, mesh: Any = None) -> list[Part]:
    """What this rank publishes of a tensor, which is whole unless it is a DTensor.

    `mesh` is the DeviceMesh of all ranks that hold these weights together: of those in it that hold
    the same part, the first has it, and others nothing. Without it a tensor's own mesh is taken for
    that, and a tensor without one is published by every rank; so ranks of FSDP2 beside tensor
    parallelism should give the mesh of both, or what is not cut for the latter comes several times.

    Of a DTensor, `data` are views of its local tensor. Raises DataError for sums that are not added
    up, and for uneven shards that PyTorch itself puts together wrongly.
    """
    if not _is_distributed(tensor):
        is_first = mesh is None or mesh.get_rank() == _first_of(mesh)
        return [Part(Place.whole(name, tuple(tensor.shape)), tensor)] if is_first else []
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or not _has_it(name, tensor.placements, coordinate):
        return []
    if mesh is not None and _first_of(mesh) not in tensor.device_mesh.mesh.flatten().tolist():
        return []
    return _parts_on(name, tensor, coordinate)


def _first_of(mesh: Any) -> int:
    return int(mesh.mesh.flatten()[0])


def _parts_on(name: str, tensor: Any, coordinate: Sequence[int]) -> list[Part]:
    """The parts that the rank at this coordinate of the tensor's mesh holds."""
    shape = tuple(tensor.shape)
    spans = [_spans_of(name, tensor, coordinate, dimension) for dimension in range(len(shape))]
    local = tensor.to_local().detach()
    held = tuple(sum(end - begin for begin, end in each) for each in spans)
    if tuple(local.shape) != held:
        raise DataError(
            f"{name}: this rank holds {list(local.shape)}, and by its placements "
            f"{tensor.placements} it should hold {list(held)}"
        )
    if not tensor.numel() and not any(coordinate):
        return [Part(Place.whole(name, shape), local.new_empty(shape))]
    return list(_boxes(name, shape, spans, local))


def _is_distributed(tensor: Any) -> bool:
    # By what it offers, so that PyTorch need not be installed.
    return hasattr(tensor, "placements") and hasattr(tensor, "device_mesh")


def _has_it(name: str, placements: Sequence[Any], coordinate: Sequence[int]) -> bool:
    """Whether this rank is the first of those that hold the same. Raises DataError."""
    for placement in placements:
        if not placement.is_replicate() and not _is_shard(placement):
            raise DataError(
                f"{name} is placed as {placement}, so that no rank has its values: redistribute it "
                "to Replicate() or Shard() before it is published"
            )
    where = zip(placements, coordinate, strict=True)
    return not any(index for placement, index in where if placement.is_replicate())


def _is_shard(placement: Any) -> bool:
    return hasattr(placement, "dim") and not placement.is_partial()


def _spans_of(name: str, tensor: Any, coordinate: Sequence[int], dimension: int) -> Spans:
    """What this rank holds along one dimension; raises DataError."""
    cuts, ranks = [], []
    for index, placement in enumerate(tensor.placements):
        if _is_shard(placement) and placement.dim == dimension:
            pieces = int(getattr(placement, "split_factor", 1))
            cuts.append(Cut(tensor.device_mesh.size(index), pieces))
            ranks.append(coordinate[index])
    size = tensor.shape[dimension]
    if not _is_clear(size, tuple(cuts)):
        raise DataError(
            f"{name}: {size} elements of dimension {dimension} do not divide evenly as "
            f"{tensor.placements}, so the placements do not tell who holds which. Make the size a "
            "multiple of the ranks, or shard another dimension"
        )
    return _cut_by(size, cuts, ranks)


def _cut_by(size: int, cuts: Iterable[Cut], ranks: Iterable[int]) -> Spans:
    """What is left of a dimension after these cuts, one after another."""
    spans: Spans = ((0, size),) if size else ()
    for cut, rank in zip(cuts, ranks, strict=True):
        pieces = [_share(spans, cut.pieces, piece) for piece in range(cut.pieces)]
        spans = _joined(span for piece in pieces for span in _share(piece, cut.ranks, rank))
    return spans


@lru_cache(maxsize=1024)
def _is_clear(size: int, cuts: tuple[Cut, ...]) -> bool:
    """Whether the cuts mean the same from left to right, as PyTorch defines them, and with those in
    pieces last, as FSDP2 makes them. What divides evenly is made as it is defined."""
    if all(cut.pieces == 1 for cut in cuts):
        return True
    if size % prod(cut.ranks * cut.pieces for cut in cuts) == 0:
        return True
    last = sorted(range(len(cuts)), key=lambda i: -i if cuts[i].pieces > 1 else -len(cuts))
    plain = [Cut(cuts[i].ranks) for i in last]
    return all(
        _cut_by(size, cuts, ranks) == _cut_by(size, plain, [ranks[i] for i in last])
        for ranks in product(*(range(cut.ranks) for cut in cuts))
    )


def _share(spans: Spans, ranks: int, rank: int) -> Spans:
    """One rank's share of the elements, as torch.chunk divides them: the last ones have less."""
    step = -(-sum(end - begin for begin, end in spans) // ranks)
    low, high, found = step * rank, step * (rank + 1), []
    for begin, end in spans:
        first, last = begin + max(low, 0), min(begin + high, end)
        if first < last:
            found.append((first, last))
        low, high = low - (end - begin), high - (end - begin)
    return tuple(found)


def _joined(spans: Iterable[tuple[int, int]]) -> Spans:
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and joined[-1][1] == begin:
            begin = joined.pop()[0]
        joined.append((begin, end))
    return tuple(joined)


def _boxes(name: str, shape: tuple[int, ...], spans: list[Spans], local: Any) -> Iterator[Part]:
    """A part for each box that the spans of all dimensions make, and its piece of the tensor."""
    for box in product(*([*zip(each, _places_in(each), strict=True)] for each in spans)):
        begin, end = (tuple(span[side] for span, _ in box) for side in (0, 1))
        yield Part(Place(name, shape, begin, end), local[tuple(own for _, own in box)])


def _places_in(spans: Spans) -> Iterator[slice]:
    """Where each span lies among the elements that the rank holds."""
    begin = 0
    for first, last in spans:
        yield slice(begin, begin + last - first)
        begin += last - first
