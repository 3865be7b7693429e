"""What tests share in which one rank is lost and the others must go on to say which."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Failure
from reference import gloo_group

import sparsewire

SURVIVED = "survived"


def await_others() -> None:
    """Return once every rank has ended what it began, so that it needs nothing of this one."""
    dist.barrier(gloo_group())
    # The others may still have to read the last message of the barrier itself.
    time.sleep(0.5)


def leave_or_go_backward(loss: torch.Tensor, lost: int) -> str:
    """Rank `lost` ends between forward and backward; the backward pass of the others names it."""
    await_others()
    if dist.get_rank() == lost:
        raise SystemExit
    with pytest.raises(sparsewire.PeerLost) as caught:
        loss.backward()
    assert caught.value.rank == lost
    return SURVIVED


def assert_others_survived(outcomes: list[Any], lost: int) -> None:
    """Check what each rank returned: SURVIVED, but for rank `lost`, which died."""
    assert isinstance(outcomes.pop(lost), Failure)
    assert outcomes == [SURVIVED] * len(outcomes), [str(outcome) for outcome in outcomes]
