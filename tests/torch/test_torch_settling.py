"""Results that cannot be brought to tensors, and callbacks that exit: who waits hears of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from sparsewire.torch.dense_part import DensePart


def cannot_copy() -> None:
    def fail(self: DensePart) -> None:
        raise ValueError("the tensor has another size now")

    settle, DensePart.settle = DensePart.settle, fail  # type: ignore[method-assign]
    try:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        assert work is not None
        for _ in range(2):
            with pytest.raises(ValueError, match="another size"):
                work.wait()
        assert work.is_completed()
        assert not work.is_success()
        with pytest.raises(ValueError, match="another size"):
            work.get_future().wait()
    finally:
        DensePart.settle = settle  # type: ignore[method-assign]
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
