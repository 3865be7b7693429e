"""Has torch's profiler show calls of the engine, each for as long as it is in flight.

Torch's own events of collectives are those of its dispatcher, by which calls of a group that is
written in Python do not pass before torch 2.14, and they end when the call returns.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch.autograd.profiler import record_function

import sparsewire


def in_flight(name: str) -> AbstractContextManager[list[sparsewire.Work]]:
    """While a profiler runs: an event from now until all works in the list have ended.

    The block is to fill the list. Without a profiler, nothing but the list.
    """
    is_running: bool = torch._C._autograd._profiler_enabled()
    return _Flight(name) if is_running else nullcontext([])


class _Flight(AbstractContextManager[list[sparsewire.Work]]):
    def __init__(self, name: str) -> None:
        self._event: Any = record_function(f"sparsewire::{name}")
        self._works: list[sparsewire.Work] = []

    def __enter__(self) -> list[sparsewire.Work]:
        self._event.__enter__()
        return self._works

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None or not self._works:
            self._event.__exit__(kind, error, trace)
            return
        landed: torch.futures.Future[Any] = torch.futures.Future()
        self._event._call_end_callbacks_on_future(landed)
        # They end in the order in which they were issued.
        self._works[-1].add_done_callback(partial(_land, landed))


def _land(landed: torch.futures.Future[Any], _: sparsewire.Work) -> None:
    landed.set_result(None)
