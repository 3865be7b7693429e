"""Groups that are made with a device: torch before 2.14 then connects at once what it may split."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from device_groups import group_in_mode
from ranks import Ranks

from sparsewire.torch.backend import TAKES_BACKENDS, member_of
from sparsewire.torch.calls.forwarding import InnerBackends


class EagerNccl(dist.ProcessGroupGloo):
    """What NCCL is like where two ranks share a GPU."""

    supports_splitting = property(lambda self: True)

    class Options:
        _timeout: Any = None

    def __init__(self, store: Any, rank: int, size: int, options: Options) -> None:
        super().__init__(store, rank, size, options._timeout)

    def eager_connect_single_device(self, device: torch.device) -> None:
        raise RuntimeError("Duplicate GPU detected")


def made_with_a_device() -> None:
    device = torch.device("cuda", 0)
    with (
        patch.object(dist, "ProcessGroupNCCL", EagerNccl, create=True),
        patch.object(InnerBackends, "has_nccl", lambda self, device_type: device_type == "cuda"),
        group_in_mode("engine", device_id=device) as group,
    ):
        assert isinstance(group._get_backend(device), EagerNccl)
        assert group._get_backend(device) is member_of(group)._inner_backends.of("cuda")
        dist.barrier(group=group)


@pytest.mark.skipif(TAKES_BACKENDS, reason="torch gets no NCCL of ours")
def test_ranks_that_share_a_gpu(ranks: Ranks) -> None:
    ranks.run(made_with_a_device)
