"""The cost of an all_reduce of a dense tensor on a device, on each path; and the cheapest path.

The functions are pure: all ranks pass the same figures, and so decide alike.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Path(Enum):
    """The paths of a dense tensor through a collective."""

    PACKED = "packed"
    """Blocks that are not zero go to the host, as rows; the union of all ranks' rows comes back."""
    DENSE = "dense"
    """All elements go to the host, and all come back."""
    INNER = "nccl"
    """The inner NCCL group serves; nothing goes to the host."""


class Sample(NamedTuple):
    """Shares of the sampled blocks that are not zero."""

    own: float
    """The share on one rank, on average."""
    union: float
    """The share of blocks that are not zero on at least one rank."""


class Speeds(NamedTuple):
    """Speeds of the slowest rank; each field has its unit."""

    down_s: float
    """Seconds for each byte from the device to pinned memory."""
    up_s: float
    """Seconds for each byte from pinned memory to the device."""
    network_s: float
    """Seconds for each byte that a rank sends, while all ranks send."""
    inner_s: float = float("inf")
    """Seconds for each byte of a tensor in NCCL's all_reduce."""
    inner_latency_s: float = 0.0
    """Seconds of a small all_reduce of NCCL."""
    places: float = 1.0
    """Number of ranks of each host, if these reduce among themselves first; else 1."""
    host_s: float = 0.0
    """Seconds for each byte of a tensor in the reduction and the gathering inside a host."""


# Seconds of the engine for each byte of rows, without the network: rows are dealt out, copied into
# segments, and put in order again. From rows against dense tensors of 100 MB on loopback.
_ROW_S = 1.0e-9
# Dense segments are sent and received in place.
_DENSE_S = 0.2e-9
# The share of NCCL's time that another path may take, since NCCL needs neither host nor sample.
_BETTER = 0.8


def predict(path: Path, nbytes: int, ranks: int, sample: Sample, speeds: Speeds) -> float:
    """Seconds of an all_reduce of `nbytes` bytes on `ranks` ranks, with one step after another."""
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
    """Seconds for a rank's slice of its host's sum, which one rank of each host reduces."""
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
