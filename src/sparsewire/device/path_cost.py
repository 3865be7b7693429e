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
    places: float = 1.0
    """Ranks of each host, where these reduce among themselves first; one that does not."""
    host_s: float = 0.0
    """Of a tensor, in that step and the one that gathers."""


# What the engine takes for each byte of rows beside the network: they are dealt out, copied into
# segments, and put in order again. From rows against dense tensors of 100 MB on loopback.
_ROW_S = 1.0e-9
# Dense segments are sent and received in place.
_DENSE_S = 0.2e-9
# The other way must be so much better than NCCL, which needs neither host nor sample.
_BETTER = 0.8


def predict(path: Path, nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> float:
    """Seconds of an all_reduce of `nbytes` on each of `ranks`, one step behind the other."""
    if path is Path.INNER:
        return speeds.inner_latency_s + nbytes * speeds.inner_s
    if speeds.places > 1:
        return nbytes * speeds.host_s + _predict_slice(path, nbytes, ranks, sample, speeds)
    share = (ranks - 1) / ranks
    if path is Path.DENSE:
        network = 2 * share * nbytes * speeds.network_s + 2 * nbytes * _DENSE_S
        return nbytes * (speeds.down_s + speeds.up_s) + network
    own, union = sample.own * nbytes, sample.union * nbytes
    network = (own + union) * (share * speeds.network_s + _ROW_S)
    return own * speeds.down_s + network + union * speeds.up_s


def _predict_slice(path: Path, nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> float:
    """Seconds of what a rank has of its host's sum, among as many ranks as there are hosts."""
    places = round(speeds.places)
    of_host = min(sample.union, 1 - (1 - sample.own) ** places)
    alone = speeds._replace(places=1.0)
    return predict(path, nbytes // places, ranks // places, Sample(of_host, sample.union), alone)


def choose(nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> Path:
    """The path to take."""

    def seconds(path: Path) -> float:
        return predict(path, nbytes, ranks, sample, speeds)

    best = min((Path.PACKED, Path.DENSE), key=seconds)
    return best if seconds(best) <= _BETTER * seconds(Path.INNER) else Path.INNER
