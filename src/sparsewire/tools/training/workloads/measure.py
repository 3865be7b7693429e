"""Measures a workload on one rank: the density of gradients, and the seconds of steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.tools.measure.wire_limit import nonzero_blocks
from sparsewire.tools.training.trial import Averaging
from sparsewire.tools.training.worker import Meter
from sparsewire.tools.training.workloads.recording import Kept, Recording, Replay
from sparsewire.tools.training.workloads.workload import Job, Size

Mode = Literal["training", "gradients"]
"""Steps of a training, or recorded gradients that are replayed."""


@dataclass(frozen=True)
class Order:
    """The order to each rank: what to run, how often, and how."""

    name: str
    size: Size
    mode: Mode
    methods: list[str]
    steps: int
    warmup: int
    recorded: int
    """Steps whose gradients are recorded, and replayed in turn."""
    compute_s: float
    """Seconds that a step takes beside communication if gradients are replayed."""
    seed: int
    timeout_s: float
    interface: str | None = None


@dataclass
class Steps:
    """The steps of one method; seconds are those of the slowest rank."""

    seconds: list[float] = field(default_factory=list)
    alone_s: float = 0.0
    """A step without communication, median."""
    losses: list[float] = field(default_factory=list)
    """Means over the ranks, all steps from the first; none where gradients are replayed."""
    sent_bytes: float | None = None
    """Bytes of a step, mean over the ranks; None if nobody counts."""


class Stepping(Protocol):
    """A training or a replay, which can be stepped."""

    ddp: DistributedDataParallel

    def prepare(self, number: int) -> None: ...

    def step(self, number: int) -> Tensor | None: ...


class Training:
    """Real steps: forward, backward and the optimiser's."""

    def __init__(self, job: Job, averaging: Averaging, seed: int) -> None:
        self._job, self._seed, self._rank = job, seed, dist.get_rank()
        self.ddp = wrapped(job.model, averaging)
        self._optimizer = job.optimizer(self.ddp.parameters())
        self._batch = job.batch_of(seed, self._rank, 0)

    def prepare(self, number: int) -> None:
        self._batch = self._job.batch_of(self._seed, self._rank, number)

    def step(self, number: int) -> Tensor:
        self._optimizer.zero_grad()
        loss: Tensor = self.ddp(*self._batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()


class Replaying:
    """Steps of recorded gradients, which nothing is done with."""

    def __init__(
        self, job: Job, recording: Recording, averaging: Averaging, compute_s: float
    ) -> None:
        job.model.zero_grad()
        self._replay = Replay(job.model, recording, compute_s)
        self.ddp = wrapped(self._replay, averaging)

    def prepare(self, number: int) -> None:
        self._replay.prepare(number)

    def step(self, number: int) -> None:
        self.ddp(number).backward()


def wrapped(model: nn.Module, averaging: Averaging) -> DistributedDataParallel:
    """The model over the default group, whose ranks have made it alike."""
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True, init_sync=False)
    averaging.attach(ddp, warmup=0)
    return ddp


def take_steps(
    stepping: Stepping, order: Order, meter: Meter | None, tell: Callable[[int], None]
) -> Steps:
    """The warm-up, the measured steps and, of both, the losses; collective."""
    found, losses = Steps(), []
    sent = 0
    for number in range(order.warmup + order.steps):
        if number == order.warmup:
            sent = meter() if meter else 0
        seconds, loss = _timed(stepping, number)
        if number >= order.warmup:
            found.seconds.append(seconds)
        losses += [] if loss is None else [float(loss)]
        tell(number + 1)
    dist.barrier()
    if meter:
        found.sent_bytes = _mean([(meter() - sent) / order.steps])[0]
    found.seconds = _slowest(found.seconds)
    found.losses = _mean(losses) if losses else []
    found.alone_s = _alone(stepping, order)
    return found


def _timed(stepping: Stepping, number: int) -> tuple[float, Tensor | None]:
    stepping.prepare(number)
    dist.barrier()
    start = time.perf_counter()
    loss = stepping.step(number)
    return time.perf_counter() - start, loss


def _alone(stepping: Stepping, order: Order) -> float:
    seconds = []
    for number in range(min(order.steps, 3)):
        with stepping.ddp.no_sync():
            seconds.append(_timed(stepping, order.warmup + order.steps + number)[0])
    return _slowest([statistics.median(seconds)])[0]


def _slowest(seconds: list[float]) -> list[float]:
    return _over_ranks(seconds, dist.ReduceOp.MAX)


def _mean(values: list[float]) -> list[float]:
    return [value / dist.get_world_size() for value in _over_ranks(values, dist.ReduceOp.SUM)]


def _over_ranks(values: list[float], op: dist.ReduceOp.RedOpType) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    found: list[float] = tensor.tolist()
    return found


@dataclass(frozen=True)
class Density:
    """Shares that are not zero, by element and by block of 256: of a rank's gradient, the mean over
    ranks, and of the union of all ranks.

    `shared` is the share of a rank's own non-zeros that at least one other rank has as well.
    """

    element: float
    block: float
    union_element: float
    union_block: float
    shared_element: float
    shared_block: float


def density(gradients: Iterable[tuple[nn.Parameter, Kept]]) -> Density:
    """The density of all parameters' gradients together; each begins a new block. Collective."""
    marks = [_marks(parameter, kept) for parameter, kept in gradients]
    elements, blocks = (np.concatenate(each) for each in zip(*marks, strict=True))
    own, own_blocks = _mean([float(elements.mean()), float(blocks.mean())])
    (union, shared), (union_blocks, shared_blocks) = _together(elements), _together(blocks)
    return Density(own, own_blocks, union, union_blocks, *_mean([shared, shared_blocks]))


def _marks(parameter: nn.Parameter, kept: Kept) -> tuple[np.ndarray, np.ndarray]:
    gradient = torch.zeros_like(parameter)
    whole = kept.whole
    if whole is not None and whole.layout is torch.sparse_coo:
        gradient += whole
    else:
        kept.fill(gradient)
    flat = gradient.detach().flatten().numpy()
    return flat != 0, nonzero_blocks(flat)


def _together(marks: np.ndarray) -> tuple[float, float]:
    """The share of what any rank has marked; of this rank's marks, that which others have, too."""
    ranks = torch.from_numpy(marks.astype(np.int32))
    dist.all_reduce(ranks)
    marking = ranks.numpy()
    return float((marking > 0).mean()), float((marking[marks] > 1).mean()) if marks.any() else 0.0


def told(found: Steps | Density) -> dict[str, object]:
    """A dictionary for an event."""
    return asdict(found)
