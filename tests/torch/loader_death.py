"""A rank that is killed while the workers of its DataLoader live, as its peers see it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import await_others
from models import FEATURES, Plain
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sparsewire

QUICK_ITEMS = 6
DEATH_STEP = 3
# The workers are in the midst of an item when their parent dies, and find out only after it.
SLOW_ITEM_S = 10.0


class Items(Dataset[torch.Tensor]):
    """Some items that are there at once, and others that take long."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= QUICK_ITEMS:
            time.sleep(SLOW_ITEM_S)
        return torch.ones(FEATURES)


def step(model: Any, batch: torch.Tensor) -> None:
    model(batch, 0).square().mean().backward()


def die(note: str, workers: list[Any]) -> None:
    Path(note).write_text(" ".join(map(str, [time.monotonic(), *[one.pid for one in workers]])))
    os.kill(os.getpid(), signal.SIGKILL)


def end_orphans(note: str, survivors: int) -> None:
    """End the victim's workers once all survivors have seen its death: they hold its pipe."""
    Path(f"{note}-{dist.get_rank()}").touch()
    deadline = time.monotonic() + SLOW_ITEM_S
    while len(list(Path(note).parent.glob(f"{Path(note).name}-*"))) < survivors:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    for orphan in Path(note).read_text().split()[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(orphan), signal.SIGKILL)


def killed_amid_training(victim: int, note: str) -> tuple[int, float]:
    """Train until rank `victim` is killed; which rank is named, and how many seconds after it."""
    # Ranks of a test are daemons, which may have no children.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    model = DistributedDataParallel(Plain())
    # Two at least, for batch norm.
    loader = DataLoader(Items(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    for _ in range(DEATH_STEP):
        step(model, next(batches).repeat(2, 1))
    await_others()
    if dist.get_rank() == victim:
        die(note, batches._workers)  # type: ignore[attr-defined]
    with pytest.raises(sparsewire.PeerLost) as lost:
        step(model, next(batches).repeat(2, 1))
    seen = time.monotonic()
    end_orphans(note, dist.get_world_size() - 1)
    return lost.value.rank, seen - float(Path(note).read_text().split()[0])
