"""What an all_reduce of a dense tensor on a device costs on each path, and which one is cheapest.

Pure: all ranks give it the same figures, and so decide alike.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Path(Enum):
    """The ways of a dense tensor through a collective."""

    PACKED = "packed"
    """Blocks that are not zero go to the host, as rows; the union of all ranks' comes back."""
    DENSE = "dense"
    """All elements go to the host, and all come back."""
    INNER = "nccl"
    """The inner NCCL group serves; nothing goes to the host."""


class Sample(NamedTuple):
    """Shares of the sampled blocks that are not zero."""

    own: float
    """On one rank, on average."""
    union: float
    """On any rank."""


class Speeds(NamedTuple):
    """Seconds for each byte, the slowest rank's."""

    down_s: float
    """From the device to pinned memory."""
    up_s: float
    """And back."""
    network_s: float
    """That a rank sends, while all ranks send."""
    inner_s: float = float("inf")
    """Of a tensor in NCCL's all_reduce."""
    inner_latency_s: float = 0.0
    """Seconds of a small all_reduce of NCCL."""


# What the engine takes for each byte of rows beside the network: they are dealt out, copied into
# segments, and put in order again. From rows against dense tensors of 100 MB on loopback.
_ROW_S = 1.0e-9
# Dense segments are sent and received in place.
_DENSE_S = 0.2e-9
# The other way must be so much better than NCCL, which needs neither host nor sample.
_BETTER = 0.8


def predict(path: Path, nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> float:
    """Seconds of an all_reduce of `nbytes` on each of `ranks`, one step behind the other."""
    share = (ranks - 1) / ranks
    if path is Path.INNER:
        return speeds.inner_latency_s + nbytes * speeds.inner_s
    if path is Path.DENSE:
        network = 2 * share * nbytes * speeds.network_s + 2 * nbytes * _DENSE_S
        return nbytes * (speeds.down_s + speeds.up_s) + network
    own, union = sample.own * nbytes, sample.union * nbytes
    network = (own + union) * (share * speeds.network_s + _ROW_S)
    return own * speeds.down_s + network + union * speeds.up_s


def choose(nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> Path:
    """The path to take."""

    def seconds(path: Path) -> float:
        return predict(path, nbytes, ranks, sample, speeds)

    best = min((Path.PACKED, Path.DENSE), key=seconds)
    return best if seconds(best) <= _BETTER * seconds(Path.INNER) else Path.INNER
