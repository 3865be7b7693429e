"""The GPU of a rank, how fast it copies, and what an all_reduce of its tensors would go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import NamedTuple

from sparsewire.device.path_cost import Path, Sample, Speeds, predict
from sparsewire.options import LinkFigures

DENSITIES = (0.001, 0.01, 0.1, 0.5, 1.0)
BYTES = 100_000_000
_DRIVER = File("/proc/driver/nvidia/version")


class Gpu(NamedTuple):
    """None where there is none, or torch does not reach it."""

    gpu: str | None = None
    gpu_down_s: float | None = None
    """Seconds of a byte from it to pinned host memory."""
    gpu_up_s: float | None = None
    """Seconds for a byte back to the device."""


@dataclass(frozen=True)
class PathChosen:
    """The engine's path for a float32 tensor of `bytes` on GPUs, without NCCL to choose.

    Each rank has a share `density` of non-zero blocks, in places of its own.
    """

    bytes: int
    density: float
    path: str
    packed_s: float
    dense_s: float


def look_at_gpu(environment: Mapping[str, str], driver: File = _DRIVER) -> Gpu:
    """This rank's, by LOCAL_RANK. Torch takes long to import, so only where there is a driver."""
    if not driver.exists():
        return Gpu()
    try:
        import torch
    except ImportError:
        return Gpu()
    if not torch.cuda.is_available():
        return Gpu()
    return _measured(int(environment.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


def _measured(index: int) -> Gpu:
    import torch

    from sparsewire.device.speeds import measure_copies
    from sparsewire.device.staging import staging_of

    copies = measure_copies(staging_of(torch.device("cuda", index)))
    return Gpu(torch.cuda.get_device_name(index), *copies)


def paths(copies: Sequence[tuple[float, float]], link: LinkFigures) -> list[PathChosen]:
    """The choices for ranks whose GPUs copy so fast, down and up, at every density."""
    down, up = (max(each) for each in zip(*copies, strict=True))
    speeds = Speeds(down, up, link.byte_s)
    return [_choose(len(copies), density, speeds) for density in DENSITIES]


def _choose(ranks: int, density: float, speeds: Speeds) -> PathChosen:
    sample = Sample(density, 1 - (1 - density) ** ranks)
    packed, dense = (
        predict(path, BYTES, ranks, sample, speeds) for path in (Path.PACKED, Path.DENSE)
    )
    chosen = Path.PACKED if packed <= dense else Path.DENSE
    return PathChosen(BYTES, density, chosen.value, packed, dense)
