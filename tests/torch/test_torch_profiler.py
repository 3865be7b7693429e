"""What torch's profiler shows of calls that the engine serves, and that it survives them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Ranks
from torch.autograd.profiler_util import Interval
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

NewRanks = Callable[..., Ranks]
WINDOWS = 200


def profiled() -> tuple[list[str], bool]:
    """The engine's events; and whether they lie within the calls, though rank 1 is late for one."""
    x = torch.zeros(10_000)
    dist.all_reduce(x)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with record_function("calls"):
            dist.all_reduce(x)
        if dist.get_rank() == 1:
            time.sleep(0.3)
        with record_function("calls"):
            work = dist.all_reduce(x, async_op=True)
            dist.broadcast(x, 0)
            work.wait()
        with record_function("calls"):
            dist.barrier()
    dist.all_reduce(x)
    told = profiler.events()
    ours = [event for event in told if event.name.startswith("sparsewire::")]
    calls = [event.time_range for event in told if event.name == "calls"]
    are_within = all(any(lies_in(event.time_range, call) for call in calls) for event in ours)
    return [event.name.removeprefix("sparsewire::") for event in ours], are_within


def lies_in(inner: Interval, outer: Interval) -> bool:
    return outer.start <= inner.start <= inner.end <= outer.end


def test_calls_and_waits_are_shown_for_as_long_as_they_hold_up_their_thread(
    new_ranks: NewRanks,
) -> None:
    first = ["all_reduce", "wait", "all_reduce", "broadcast", "wait", "wait"]
    barrier = ["all_reduce", "wait"]
    assert new_ranks(2).run(profiled) == [(first + barrier, True)] * 2


def model() -> DistributedDataParallel:
    layers = [torch.nn.Linear(64, 64) for _ in range(6)]
    return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)


def step(network: DistributedDataParallel) -> None:
    network(torch.ones(4, 64)).sum().backward()


def in_windows_of_a_schedule() -> None:
    network = model()
    plan = schedule(wait=1, warmup=1, active=3, repeat=4)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _ in range(25):
            step(network)
            profiler.step()


def in_short_windows() -> float:
    """Train while profilers come and go, and calls are in flight when they do.

    Returns what each rank has in a tensor that another thread reduces meanwhile.
    """
    network = model()
    group = dist.new_group()
    beside = torch.ones(1000)
    thread = threading.Thread(target=reduce_beside, args=(beside, group))
    thread.start()
    flying: list[tuple[dist.Work, torch.Tensor]] = []
    for window in range(WINDOWS):
        with torch.autograd.profiler.profile(enabled=window % 3 > 0):
            step(network)
            ones = torch.ones(1 + 977 * (window % 7))
            flying.append((dist.all_reduce(ones, async_op=True), ones))
        # Those of former windows end in this one, outside of it, or in a thread of the engine.
        if window % 5 == 4:
            for work, _ in flying[:-2]:
                work.wait()
            del flying[:-2]
    for work, ones in flying:
        work.wait()
        assert ones.eq(dist.get_world_size()).all()
    thread.join()
    return float(beside[0])


def reduce_beside(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    for _ in range(WINDOWS):
        dist.all_reduce(tensor, async_op=True, group=group).get_future().wait()
        tensor /= dist.get_world_size()


def test_training_goes_on_while_profilers_come_and_go(new_ranks: NewRanks) -> None:
    two = new_ranks(2)
    two.run(in_windows_of_a_schedule)
    assert two.run(in_short_windows) == [1.0, 1.0]
