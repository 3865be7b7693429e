"""Measures the link between the ranks at the start of a job, with the engine's own collectives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from sparsewire._core import Communicator as Core
from sparsewire.collectives.communicator import Communicator
from sparsewire.engine import Engine
from sparsewire.options import LinkFigures, Options
from sparsewire.sparse_vector import SparseVector

_SMALL_CALLS = 7

# Sizes grow until a call takes about this long, so that a slow link is not kept busy for longer.
# The number of calls is fixed: operations are numbered, and rounding at random depends on that.
_BULK_CALLS = 5
_BULK_TARGET_S = 0.012
_BULK_FIRST_BYTES = 32 * 1024
_BULK_LAST_BYTES = 4 * 1024 * 1024
_BULK_GROWTH = 8.0

_MERGE_CALLS = 8
_MERGE_LENGTH = 1 << 17
_MERGE_EVERY = 8


def measure_link(communicator: Communicator, timeout: float) -> LinkFigures:
    """Measure the link; a collective call that gives every rank the same figures, to the last bit.

    It takes about 60 ms, also on slow links. `timeout` in seconds is for each of its collectives,
    whose errors it raises.
    """
    reduce = partial(_reduce, communicator, timeout)
    tiny = SparseVector([0], [1.0], 1)
    latency_s = reduce("max", _latency(partial(communicator.all_gather, tiny, timeout=timeout)))
    byte_s = _byte_seconds(communicator, timeout, latency_s)
    # All ranks measure at the same time, because they may share processors.
    merge_s = reduce("avg", _merge_seconds())
    return LinkFigures(latency_s, byte_s, merge_s)


def _latency(gather_little: Callable[[], object]) -> float:
    """Seconds of an all_gather of next to nothing: one message to every rank and one from it."""
    return statistics.median(_timed(gather_little) for _ in range(_SMALL_CALLS))


def _byte_seconds(communicator: Communicator, timeout: float, latency_s: float) -> float:
    """Seconds per byte sent in dense all_reduces, which spend the least on anything else."""
    size = float(_BULK_FIRST_BYTES)
    per_byte = []
    for _ in range(_BULK_CALLS):
        x = np.ones(int(size) // 4, np.float32)
        spent = _timed(partial(communicator.all_reduce, x, timeout=timeout))
        seconds = _reduce(communicator, timeout, "max", spent)
        # A value crosses once from host to host, and each rank sends its share.
        sent = 2 * (communicator.hosts - 1) / communicator.world_size * x.nbytes
        # A dense all_reduce goes to the owners and back.
        per_byte.append(max(seconds - 2 * latency_s, seconds / 2) / sent)
        grown = size * min(max(_BULK_TARGET_S / seconds, 1.0), _BULK_GROWTH)
        size = min(grown, float(_BULK_LAST_BYTES))
    # The first calls are small, and what buffers hold makes them look fast. Disturbances only add.
    return min(per_byte[-2:])


def _merge_seconds() -> float:
    """Seconds per element of a sparse all_reduce of this rank alone, where nothing is sent."""
    positions = np.arange(0, _MERGE_LENGTH, _MERGE_EVERY)
    x = SparseVector(positions, np.ones(len(positions), np.float32), _MERGE_LENGTH)
    alone = Options(rank=0, world_size=1)
    with Communicator(Engine(Core(0, 1, [[-1]]), alone), alone) as communicator:
        communicator.all_reduce(x)
        # The mean, not the median: waiting for a processor that other ranks use counts.
        times = [_timed(partial(communicator.all_reduce, x)) for _ in range(_MERGE_CALLS)]
    return statistics.mean(times) / x.nnz


def _reduce(communicator: Communicator, timeout: float, op: str, value: float) -> float:
    """Reduce a value of each rank, so that all agree. The call also aligns the ranks in time."""
    return float(communicator.all_reduce(np.array([value]), op, timeout=timeout)[0])


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
