"""Views as inference engines have them: slices of tensor parallelism, fused and stacked weights.

Weights of linear layers have the shape (out, in), as in PyTorch and Hugging Face's models. `rank`
of `ranks` is the reader's rank in tensor parallelism.
"""

from __future__ import annotations

from sparsewire.errors import DataError
from sparsewire.weights.shards.views import View, concatenated


def column(view: View, rank: int, ranks: int) -> View:
    """A layer's share of outputs, of weight or bias: the first dimension is cut."""
    return view.shard(0, rank, ranks)


def row(view: View, rank: int, ranks: int) -> View:
    """A layer's share of inputs: the last dimension of the weight is cut. Its bias stays whole."""
    return view.shard(len(view.shape) - 1, rank, ranks)


def vocabulary(view: View, padded: int, rank: int, ranks: int) -> View:
    """A share of the rows of an embedding or head, whose number the reader pads to `padded`."""
    return column(view.pad(0, padded), rank, ranks)


def heads(view: View, count: int, rank: int, ranks: int) -> View:
    """A share of `count` heads of keys or values; of less heads than ranks, one that others share.

    Raises DataError where neither number divides the other.
    """
    if count % ranks and ranks % count:
        raise DataError(f"{count} heads do not divide among {ranks} ranks, nor these among heads")
    shares = min(count, ranks)
    return view.shard(0, rank * shares // ranks, shares)


def qkv(query: View, key: View, value: View, kv_heads: int, rank: int, ranks: int) -> View:
    """Query, key and value of a rank as one matrix, or bias, in this order."""
    shares = [column(query, rank, ranks)]
    shares += [heads(each, kv_heads, rank, ranks) for each in (key, value)]
    return concatenated(shares)


def gate_up(gate: View, up: View, rank: int, ranks: int) -> View:
    """Gate and up projection of a rank as one matrix, in this order."""
    return concatenated([column(gate, rank, ranks), column(up, rank, ranks)])
