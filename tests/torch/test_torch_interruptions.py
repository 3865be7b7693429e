"""Ctrl-C right behind the submission of an operation, before torch has a handle of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from interrupted import Interrupted
from ranks import Ranks

from sparsewire.torch.backend import member_of


def reduce(tensor: torch.Tensor, group: Any) -> None:
    dist.all_reduce(tensor, group=group)


def broadcast(tensor: torch.Tensor, group: Any) -> None:
    dist.broadcast(tensor, 0, group=group)


def interrupt(call: Callable[[torch.Tensor, Any], None]) -> bool:
    group = dist.new_group()
    if dist.get_rank() != 0:
        dist.barrier()
        call(torch.ones(100_000), group)
        return True
    member = member_of(group)
    assert member is not None
    communicator = member.communicator
    core, tensor = communicator.engine.core, torch.ones(100_000)
    alive = weakref.ref(tensor.untyped_storage())
    communicator.engine.core = interrupted = Interrupted(core)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        call(tensor, group)
    communicator.engine.core = core
    del tensor
    gc.collect()
    in_flight_and_alive = not interrupted.operation.done() and alive() is not None
    dist.barrier()
    interrupted.operation.wait(20.0)
    return in_flight_and_alive and interrupted.operation.failure() is None


@pytest.mark.parametrize("call", [reduce, broadcast])
def test_ctrl_c_behind_the_submission_leaves_the_memory(
    new_ranks: Callable[..., Ranks], call: Callable[[torch.Tensor, Any], None]
) -> None:
    assert all(new_ranks(2).run(interrupt, call))
