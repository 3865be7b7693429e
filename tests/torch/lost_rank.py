"""What tests share in which one rank is lost and the others must go on to say which."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Failure

import sparsewire

SURVIVED = "survived"


def leave_or_go_backward(loss: torch.Tensor, lost: int) -> str:
    """Rank `lost` ends between forward and backward; the backward pass of the others names it."""
    if dist.get_rank() == lost:
        # The others still receive from this rank what its last step needs.
        time.sleep(0.5)
        raise SystemExit
    with pytest.raises(sparsewire.PeerLost) as caught:
        loss.backward()
    assert caught.value.rank == lost
    return SURVIVED


def assert_others_survived(outcomes: list[Any], lost: int) -> None:
    """Check what each rank returned: SURVIVED, but for rank `lost`, which died."""
    assert isinstance(outcomes.pop(lost), Failure)
    assert outcomes == [SURVIVED] * len(outcomes), [str(outcome) for outcome in outcomes]
