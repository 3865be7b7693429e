"""What tests of trainings share: a group of this process alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """The default process group over gloo, which outlives what a test has made.

    A DistributedDataParallel that lets go of it last waits, with Python's lock, for a thread of
    gloo that may need this lock: torch 2.13 then stands still for good.
    """
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
