"""A bucket's cost by each way of averaging: bytes on the link, and the processor's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sparsewire._core import CHUNK_ELEMENTS
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.measure.wire_limit import Share, colocated_bytes


@dataclass(frozen=True)
class Transfer:
    """`bytes` leave each host, and as many come; it takes `seconds`, and nothing else goes on then.

    For `hook_s` before them the backward pass stands still. Where ranks share processors, what is
    computed meanwhile loses `stolen_s` of these seconds.
    """

    bytes: float
    seconds: float
    hook_s: float = 0.0
    stolen_s: float = 0.0

    def scaled(self, factor: float) -> Transfer:
        """The transfer with all times scaled by `factor`."""
        return Transfer(
            self.bytes, self.seconds * factor, self.hook_s * factor, self.stolen_s * factor
        )


Way = Callable[[Gradient, Network], Transfer]


def ring(gradient: Gradient, network: Network) -> Transfer:
    """Gloo's and NCCL's: a ring over all ranks, or for sparse tensors, `gathered`."""
    if gradient.row_bytes is not None:
        return gathered(gradient, network)
    n = network.all_ranks
    moved = 2 * (n - 1) / n * gradient.payload
    return _round(moved, 2 * (n - 1), network)


def gathered(gradient: Gradient, network: Network) -> Transfer:
    """Gloo's of sparse tensors: all rows of each rank go to all, and each adds them up.

    As torch does it: a rank sorts its rows, three rings give sizes, positions and rows to all, and
    each sorts what all have given. With n ranks it receives n - 1 times the rows of one.
    """
    n = network.all_ranks
    if n == 1:
        return Transfer(0.0, 0.0)
    rows, row_bytes = gradient.rows(1), gradient.row_bytes or 0.0
    sent = _round((n - 1) * rows * (costs.INDEX_BYTES + row_bytes), 3 * (n - 1), network)
    sorted_s = (gradient.coalesce_s(rows) + gradient.coalesce_s(n * rows)) * network.crowd
    return replace(sent, seconds=sent.seconds + sorted_s, stolen_s=sent.stolen_s + sorted_s)


def _round(moved: float, hops: int, network: Network) -> Transfer:
    """A ring: each rank moves `moved` bytes, in `hops` steps from neighbour to neighbour."""
    is_far = network.hosts > 1
    if network.on_device:
        hop_s, byte_s = costs.NCCL_HOP_S, 0.0
    else:
        hop_s = costs.GLOO_HOP_S
        byte_s = costs.GLOO_BYTE_S if is_far else costs.RING_NEAR_BYTE_S
    far = moved if is_far else 0.0
    busy = moved * byte_s * network.crowd
    wire_s = network.wire_s(far) * (1.0 if network.on_device else costs.GLOO_PAUSES)
    return Transfer(
        far, hops * hop_s + max(wire_s, busy), stolen_s=busy if network.is_shared else 0.0
    )


def engine(gradient: Gradient, network: Network) -> Transfer:
    """Sparsewire's, through owners; ranks of a host are added up before anything leaves it."""
    if network.all_ranks == 1:
        return Transfer(0.0, 0.0)
    formats = (_by_format(gradient, network, by_element) for by_element in (False, True))
    return min(formats, key=lambda transfer: transfer.seconds)


def _by_format(gradient: Gradient, network: Network, by_element: bool) -> Transfer:
    """The engine weighs a byte saved against the time of picking single elements."""
    one, host, all_hosts = (
        gradient.sent_share(ranks, by_element) for ranks in (1, network.ranks, network.all_ranks)
    )
    far = colocated_bytes(gradient.payload, network.hosts, Share(host, all_hosts))
    near = colocated_bytes(gradient.payload, network.ranks, Share(one, all_hosts))
    if gradient.row_bytes is not None and network.ranks == 1:
        # If ranks overlap little, the engine gives all rows to all ranks, as gloo does.
        far = min(far, (network.hosts - 1) * gradient.payload * one)
    busy = far / network.ranks * costs.SENT_BYTE_S + near * costs.NEAR_BYTE_S
    copied = network.copy_s(gradient.payload * (one + all_hosts))
    own_s = _looking_s(gradient, by_element) + gradient.coalesce_s(gradient.rows(1))
    before = costs.CALL_S + own_s * network.crowd + copied
    seconds = before + max(network.wire_s(far), busy * network.crowd)
    stolen_s = (own_s + busy) * network.crowd if network.is_shared else 0.0
    return Transfer(far, seconds, stolen_s=stolen_s)


def _looking_s(gradient: Gradient, by_element: bool) -> float:
    """Seconds of finding non-zeros, chunk by chunk."""
    if not gradient.is_scanned:
        return 0.0
    seconds = gradient.payload * costs.SCAN_BYTE_S
    if by_element:
        seconds += gradient.payload * gradient.blocks.union(1) * costs.PICK_BYTE_S
    return seconds + gradient.count / CHUNK_ELEMENTS * costs.CHUNK_S


def feedback(gradient: Gradient, network: Network) -> Transfer:
    """Error feedback: every rank gives 1% of its blocks to every other."""
    return _hooked(
        gradient,
        network,
        _message(gradient, costs.FEEDBACK_BITS),
        costs.FEEDBACK_ENCODE_BYTE_S,
        costs.FEEDBACK_SETTLE_BYTE_S,
    )


def diana(gradient: Gradient, network: Network) -> Transfer:
    """DIANA: every rank gives quantised differences to every other."""
    settle = costs.DIANA_SETTLE_BYTE_S + network.all_ranks * costs.DIANA_DECODE_BYTE_S
    message = _message(gradient, costs.DIANA_BITS)
    return _hooked(gradient, network, message, costs.DIANA_ENCODE_BYTE_S, settle)


def _message(gradient: Gradient, bits: float) -> float:
    """Bytes that a rank sends where an element takes so many bits; small parameters go whole."""
    large = sum(size for size in gradient.parameters if size >= costs.EXACT_ELEMENTS)
    small = sum(gradient.parameters) - large
    return large * bits / 8 + small * costs.EXACT_ITEM_BYTES


def _hooked(
    gradient: Gradient, network: Network, message: float, encode_byte_s: float, settle_byte_s: float
) -> Transfer:
    """Coded in the backward pass, given by each rank to each, and settled behind it."""
    if gradient.row_bytes is not None:
        return engine(gradient, network)
    n, ranks = network.all_ranks, network.ranks
    worked = gradient.count * costs.EXACT_ITEM_BYTES
    hook_s = worked * encode_byte_s * network.crowd + network.copy_s(gradient.payload)
    settle_s = worked * settle_byte_s * network.crowd + network.copy_s(gradient.payload)
    far, near = (n - ranks) * message, (ranks - 1) * message
    busy = (far * costs.SENT_BYTE_S + near * costs.NEAR_BYTE_S) * network.crowd
    wire_s = network.wire_s(far * ranks) * _incast(message, n)
    sent_s = max(wire_s, busy) + (costs.CALL_S if n > 1 else 0.0)
    stolen_s = busy + settle_s if network.is_shared else 0.0
    return Transfer(far * ranks, sent_s + settle_s, hook_s, stolen_s)


def _incast(message: float, ranks: int) -> float:
    """How many times as long messages to all take as the links would need.

    Measured on emulated hosts. Short messages fit into the buffers of sockets, and all links are
    busy; with long ones some links stand still for a while. Nothing is sent twice then, and in
    which order the ranks are served changes nothing.
    """
    if message <= costs.BUFFERED_BYTES:
        return 1.0
    at_once = 2 if message <= costs.HALF_BUFFERED_BYTES else 1
    return max(1.0, ranks / at_once)
