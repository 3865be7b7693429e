"""Separates the lives of a job that torchrun starts again: the store outlives the ranks.

Torch leaves the entries of an earlier life in the store, nodes do not count restarts alike, and a
node may be new. So ranks ask rank 0 for the name of this life.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.errors import Error
from sparsewire.launcher import has_agent
from sparsewire.meeting.places.place import absent, lost

_POLL_S = 0.002


def of_this_life(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    environment: Mapping[str, str] = os.environ,
) -> Store:
    """A part of a group's store that no earlier life of the job has used; all ranks call this.

    Without an agent of torchrun there is one life, which has the whole store. Raises Timeout if a
    rank does not come, and Error if the store is lost.
    """
    if not has_agent(environment):
        return store
    try:
        life = _name(store, size, timeout) if rank == 0 else _ask(store, rank, timeout)
    except Error:
        raise
    except RuntimeError as error:
        raise lost(error) from error
    return PrefixStore(f"life-{life}", store)


def _ask(store: Any, rank: int, timeout: timedelta) -> str:
    """Ask rank 0 a new question, which only the rank 0 of this life can answer."""
    question = secrets.token_hex(8)
    answer = f"answer/{question}"
    store.set(f"question/{rank}", question)
    try:
        store.wait([answer], timeout)
    except dist.DistStoreError as error:
        raise absent([0], error) from error
    life: str = store.get(answer).decode()
    store.set(f"heard/{life}/{rank}", "")
    return life


def _name(store: Any, size: int, timeout: timedelta) -> str:
    """Answer until all ranks have heard; a question of an earlier life may be replaced later."""
    life = secrets.token_hex(8)
    missing = set(range(1, size))
    deadline = time.monotonic() + timeout.total_seconds()
    while missing:
        for rank in missing:
            _answer(store, rank, life)
        missing = {rank for rank in missing if not store.check([f"heard/{life}/{rank}"])}
        if missing and time.monotonic() > deadline:
            raise absent(sorted(missing), f"{timeout.total_seconds():g} s have passed")
        time.sleep(_POLL_S if missing else 0)
    return life


def _answer(store: Any, rank: int, life: str) -> None:
    if store.check([f"question/{rank}"]):
        store.set(f"answer/{store.get(f'question/{rank}').decode()}", life)
