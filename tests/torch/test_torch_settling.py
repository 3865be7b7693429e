"""Results that cannot be brought to tensors, and callbacks that exit: who waits hears of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks


def cannot_copy() -> None:
    tensor = torch.ones(4, 2).t()
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    tensor.data = torch.ones(3)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must match the size"):
            work.wait()
    assert work.is_completed()
    assert not work.is_success()
    with pytest.raises(RuntimeError, match="must match the size"):
        work.get_future().wait()
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x.eq(dist.get_world_size()).all()


def test_failed_copy_is_raised_to_all_who_wait(ranks: Ranks) -> None:
    ranks.run(cannot_copy)


def exits() -> None:
    def leave(_: Any) -> None:
        raise SystemExit(3)

    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    future = work.get_future()
    left = future.then(leave)
    with pytest.raises(SystemExit):
        left.wait()
    assert future.then(lambda done: done.value()[0].sum()).wait() == 4 * dist.get_world_size()


def test_exit_in_a_callback_is_raised_to_who_waits(ranks: Ranks) -> None:
    ranks.run(exits)
