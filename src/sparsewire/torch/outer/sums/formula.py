"""Bytes that a round sends, by formula: of each way to add up, and of messages. The model that
chooses a way, benchmarks and docs use them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sparsewire.compress import Compressor, Draws
from sparsewire.torch.outer.sums.parcel import ROW_BYTES
from sparsewire.torch.outer.sums.sums import Vector

FLOAT_BYTES = 4
INDEX_BYTES = 2
"""Of a position among the 65,536 of one of the engine's chunks."""
_PARCEL_BYTES = 288
_NOTHING_BYTES = 144
"""Of the engine's frames to each peer, beside the rows of a parcel, and where there are none."""
_LENGTH_AND_KIND = 9
_HEADER_BYTES = 66
_PAYLOAD_BYTES = 1448
"""Of a full packet: headers of Ethernet, IPv4 and TCP with timestamps, and what they carry."""
_ACKNOWLEDGED = 4
_PACKETS_BESIDE = 3
"""As measured in the lab: full packets for each acknowledgement, and, for each collective and peer,
packets that are not full."""


def link_bytes(nbytes: float, members: int, collectives: int = 1) -> float:
    """Bytes on a link for as many of the engine each way, with the headers of packets of 1500."""
    full = nbytes / _PAYLOAD_BYTES * (1 + 1 / _ACKNOWLEDGED)
    beside = collectives * (members - 1) * _PACKETS_BESIDE
    return nbytes + _HEADER_BYTES * (full + beside)


def parcel_bytes(message: float | None) -> float:
    """Bytes from one member to another for a message of so many bytes, or None for nothing.

    Whole rows, and the frames of the engine with their headers of 32 bytes.
    """
    if message is None:
        return _NOTHING_BYTES
    return math.ceil((_LENGTH_AND_KIND + message) / ROW_BYTES) * ROW_BYTES + _PARCEL_BYTES


def dense_bytes(elements: int, members: int) -> float:
    """Bytes that a member sends, and receives, for a dense sum in float32: 2 (R-1)/R 4n."""
    return 2 * (members - 1) / members * FLOAT_BYTES * elements


def gather_bytes(message: float, members: int) -> float:
    """Bytes that a member sends, and receives, if each gives its message to all others."""
    return (members - 1) * parcel_bytes(message)


def owned_bytes(up: Sequence[float], down: Sequence[float]) -> float:
    """Bytes that a member sends, and receives, in the mean over members, if each owns a part.

    Rank by rank, `up` is a message of a contribution to the part, and `down` that of its sum; their
    number is that of the members. 0 stands for no message, because the part is empty.
    """
    members = len(up)
    each = [parcel_bytes(message or None) for message in (*up, *down)]
    return (members - 1) / members * sum(each)


def pairs_bytes(message: float, members: int) -> float:
    """Bytes that a member sends, and receives, in the mean over members, if each has one partner.

    One of an odd number of members is alone.
    """
    paired = (members - members % 2) / members
    others = members - 1 - paired
    return paired * parcel_bytes(message) + others * parcel_bytes(None)


def stream_bytes(elements: int, kept: int, members: int, block: int = 1) -> float:
    """Bytes that a member sends, and receives, if the engine's owners add up positions.

    `kept` elements of each member, in blocks of `block`, at independent places: an upper bound
    where places meet.
    """
    union = union_share(kept / elements, members) * elements
    both = _marked_bytes(kept, elements, block) + _marked_bytes(union, elements, block)
    return (members - 1) / members * both


def engine_bytes(elements: int, kept: int, members: int, block: int = 1) -> float:
    """The same if the engine chooses: owners add up, or each sends to all others if that is less.

    It chooses by time, so these are the least bytes.
    """
    to_all = (members - 1) * _marked_bytes(kept, elements, block)
    return min(stream_bytes(elements, kept, members, block), to_all)


def _marked_bytes(kept: float, elements: int, block: int) -> float:
    """Of elements behind a bitmap of blocks, or with an index each."""
    index = INDEX_BYTES * kept if block == 1 else math.inf
    return FLOAT_BYTES * kept + min(index, elements / block / 8)


def union_share(share: float, members: int) -> float:
    """The share of positions that some member names, if each names `share` independently."""
    return 1 - (1 - share) ** members


def position_bits(kept: int, span: int) -> float:
    """The least bits for each of `kept` positions among `span`: log2 of the choices there are."""
    choices = math.lgamma(span + 1) - math.lgamma(kept + 1) - math.lgamma(span - kept + 1)
    return choices / math.log(2) / kept


def exact_bytes(elements: int, share: float) -> float:
    """Bytes of a message that has the non-zero elements, a share of all, as they are."""
    if not 0 < share < 1:
        return FLOAT_BYTES * elements * share
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    return elements * (FLOAT_BYTES * share + entropy / 8)


def message_bytes(operator: Compressor) -> int:
    """Bytes of the operator's message for a normal vector, the same one in each call."""
    return len(operator.encode(normal(operator.dimension), Draws(0)))


def answer_bytes(up: Compressor, down: Compressor, members: int) -> int:
    """Bytes of the message of `down` for a sum of messages of `up`, of independent normal vectors.

    Values of such a sum repeat more than those of the vectors, so it takes other bytes.
    """
    total = np.zeros(up.dimension, np.float32)
    for member in range(members):
        up.add(up.code(normal(up.dimension, member), Draws(0)), total)
    return len(down.encode(total, Draws(0)))


def normal(elements: int, member: int = 0) -> Vector:
    """Normal elements, shape (elements,), of each member its own, the same in each call."""
    return Draws(0, member, "normal").generator.standard_normal(elements, np.float32)
