"""Counts what crosses between a device and the host, as far as hooks have to do with it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from device_groups import double

# They give the host what a tensor holds, and wait for the device. Not all that wait: `nonzero`,
# boolean indices and copies by `to` are not seen, nor what others call for us.
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
OURS = ("torch/hooks/device_", "torch/hooks/packed", "torch/operators/")


class Crossings:
    """Bytes each way, and reads of tensors that were not copied to pinned memory."""

    def __init__(self) -> None:
        self.down = 0
        self.up = 0
        self.reads: list[str] = []


@contextlib.contextmanager
def crossings() -> Iterator[Crossings]:
    """Count in this process, whose CPU is staged over a double."""
    found, copy = Crossings(), torch.Tensor.copy_

    def copying(target: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_ours():
            on_device = double().holds(target), double().holds(source)
            found.down += source.nbytes * (on_device == (False, True))
            found.up += source.nbytes * (on_device == (True, False))
        return copy(target, source, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(torch.Tensor, "copy_", copying))
        for name in READS:
            stack.enter_context(patch.object(torch.Tensor, name, _noting(name, found)))
        yield found


def _noting(name: str, found: Crossings) -> Any:
    read = getattr(torch.Tensor, name)

    def reading(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_ours() and double().holds(tensor):
            found.reads.append(f"{name} of {tensor.nbytes} bytes")
        return read(tensor, *args, **kwargs)

    return reading


def _is_ours() -> bool:
    """Whether what is on its way to a device, or comes from it, called."""
    caller = sys._getframe(2).f_code.co_filename
    return any(each in caller for each in OURS)
