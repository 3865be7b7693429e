"""Calls of inner backends with tensors that are plain memory, which is all that backends know.

Copies stand in for other tensors. Gloo would take strided or negated ones for what they are not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from sparsewire.device.plain import plain
from sparsewire.torch.futures import Callbacks
from sparsewire.torch.work import Together

_NO_LIMIT = timedelta(0)
Pair = tuple[torch.Tensor, torch.Tensor]
"""A tensor, and the copy that stands in for it."""


def call_plainly(
    call: Callable[..., Any],
    callbacks: Callbacks,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    writes: bool = True,
) -> Any:
    """What `call` returns; a work of ours where copies are to be copied back at its end.

    With `writes`, it writes the tensors of its first argument.
    """
    pairs: list[Pair] = []
    values = [*args, *kwargs.values()]
    stand_ins = [_plain(values[0], pairs)] if values else []
    written = list(pairs) if writes else []
    stand_ins += [_plain(value, pairs) for value in values[1:]]
    named = dict(zip(kwargs, stand_ins[len(args) :], strict=True))
    work = call(*stand_ins[: len(args)], **named)
    return CopiedBack(work, values[0], written, callbacks) if written else work


def _plain(value: Any, pairs: list[Pair]) -> Any:
    """The value with plain tensors in it, however nested; what was replaced goes to `pairs`."""
    if isinstance(value, list | tuple):
        return [_plain(each, pairs) for each in value]
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    memory = plain(value)
    if memory is not value:
        pairs.append((value, memory))
    return memory


class CopiedBack(Together):
    """A call whose results are in copies. Once it is known to have ended, they are in `outputs`."""

    def __init__(self, work: Any, outputs: Any, written: list[Pair], callbacks: Callbacks) -> None:
        works = [] if work is None else [work]  # NCCL has none while it coalesces.
        tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        super().__init__(works, tensors, callbacks)
        self._written = written
        self._copying = threading.Lock()

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero is none."""
        super().wait(timeout)
        self._copy_back()
        return True

    def is_completed(self) -> bool:
        completed = super().is_completed()
        if completed and self.is_success():
            self._copy_back()
        return completed

    def _source_rank(self) -> int:
        rank: int = self._works[0]._source_rank()
        return rank

    def _copy_back(self) -> None:
        with self._copying:
            for tensor, memory in self._written:
                tensor.detach().copy_(memory)
            self._written = []
