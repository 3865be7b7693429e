"""Calls of inner backends with tensors that are plain memory, the only kind that backends know.

Copies stand in for other tensors. Gloo would misread strided or negated tensors. In sends and
receives, it would take the address of a tensor on a device for an address of host memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from sparsewire.collectives.staged import refuse_capture
from sparsewire.device.accelerator import ACCELERATORS, Event, is_on_device
from sparsewire.device.plain import plain
from sparsewire.torch.calls.futures import Callbacks
from sparsewire.torch.calls.work import Together

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
    on_host: bool = False,
) -> Any:
    """The work of `call`, or a work of ours if copies are to be copied back at its end.

    With `writes`, `call` writes the tensors of its first argument. With `on_host`, it knows only
    host memory.
    """
    pairs: list[Pair] = []
    replace = partial(_replaced, pairs=pairs, on_host=on_host)
    values = [*args, *kwargs.values()]
    stand_ins = [replace(values[0])] if values else []
    written = list(pairs) if writes else []
    stand_ins += [replace(value) for value in values[1:]]
    named = dict(zip(kwargs, stand_ins[len(args) :], strict=True))
    work = call(*stand_ins[: len(args)], **named)
    return CopiedBack(work, values[0], written, callbacks) if written else work


def _replaced(value: Any, pairs: list[Pair], on_host: bool) -> Any:
    """The value with plain tensors in it, nested or not; `pairs` gets the replaced tensors."""
    if isinstance(value, list | tuple):
        return [_replaced(each, pairs, on_host) for each in value]
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    memory = _copied_to_host(value) if on_host and is_on_device(value) else plain(value)
    if memory is not value:
        pairs.append((value, memory))
    return memory


def _copied_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory, after the work in the caller's stream. Blocks for the device."""
    refuse_capture(tensor.device)
    on_host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    _copy(on_host, tensor)
    accelerator = ACCELERATORS[tensor.device.type]
    accelerator.record(accelerator.current(tensor.device)).synchronize()
    return on_host


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy; if a tensor is on a device, after the work that is in the caller's stream now."""
    copy = partial(target.detach().copy_, source.detach())
    device = next((each.device for each in (target, source) if is_on_device(each)), None)
    if device is None:
        copy()
        return
    accelerator = ACCELERATORS[device.type]
    current = accelerator.current(device)
    accelerator.run(current, copy)
    for tensor in (target, source):
        if is_on_device(tensor):
            accelerator.hold(tensor, current)


class CopiedBack(Together):
    """A call whose results are in copies. Once known to have ended, it copies them to `outputs`."""

    def __init__(self, work: Any, outputs: Any, written: list[Pair], callbacks: Callbacks) -> None:
        works = [] if work is None else [work]  # NCCL has none while it coalesces.
        tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        super().__init__(works, tensors, callbacks)
        self._written = written
        self._copying = threading.Lock()
        self._there: list[tuple[torch.device, Event]] = []

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Block until the end; raises the typed error. A timeout of zero means no limit."""
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
                _copy(tensor, memory)
            self._there += _ends({tensor.device for tensor, _ in self._written})
            self._written = []
        # A later caller may be on another stream than the caller that copied.
        for device, event in self._there:
            accelerator = ACCELERATORS[device.type]
            accelerator.wait(accelerator.current(device), event)


def _ends(devices: Iterable[torch.device]) -> list[tuple[torch.device, Event]]:
    """Events at the present end of the caller's streams, for devices that have streams."""
    reached = [(device, ACCELERATORS.get(device.type)) for device in devices]
    return [(device, each.record(each.current(device))) for device, each in reached if each]
