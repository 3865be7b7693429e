"""What torch's profiler shows of calls that the engine serves."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Ranks
from torch.profiler import ProfilerActivity, profile

NewRanks = Callable[..., Ranks]


def profiled() -> list[tuple[str, float]]:
    """Events of the engine, with what they took in seconds; rank 1 is late for the second call."""
    x = torch.zeros(10_000)
    dist.all_reduce(x)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(x)
        if dist.get_rank() == 1:
            time.sleep(0.3)
        work = dist.all_reduce(x, async_op=True)
        dist.broadcast(x, 0)
        work.wait()
        dist.barrier()
        time.sleep(0.1)
    dist.all_reduce(x)
    return [
        (event.name, event.time_range.elapsed_us() / 1e6)
        for event in profiler.events()
        if event.name.startswith("sparsewire::")
    ]


def test_calls_are_shown_for_as_long_as_they_are_in_flight(new_ranks: NewRanks) -> None:
    first, second = new_ranks(2).run(profiled)
    for told in (first, second):
        names = [name for name, _ in told]
        assert names[:3] == ["sparsewire::all_reduce"] * 2 + ["sparsewire::broadcast"]
    assert first[1][1] > 0.15
