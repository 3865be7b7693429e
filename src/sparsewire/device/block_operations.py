"""Packing's operations on blocks, by torch or by Triton kernels, and the choice between these.

Both give the same bits. Kernels are for CUDA, if Triton is installed and measures faster.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Protocol

import torch

from sparsewire.device.plain import bits

_logger = logging.getLogger(__name__)

SETTING = "SPARSEWIRE_TRITON"

# Operations are timed on 16 MiB, with a tenth of the rows not zero.
_ROWS, _WIDTH, _SHARE = 16384, 256, 10
_TURNS = 5


class Operations(Protocol):
    """Operations on contiguous rows of blocks. `mark` takes rows of numbers, the others of bits."""

    def mark(self, rows: torch.Tensor) -> torch.Tensor:
        """Whether each row is not zero, bool, shape (rows,): -0.0 is zero, and NaN is not."""

    def gather(self, rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """The rows at `indices`, int64, in new memory."""

    def fill(self, rows: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
        """Write `values` to the rows at `indices`, which are distinct, and zeros to all others."""


class TorchOperations:
    def mark(self, rows: torch.Tensor) -> torch.Tensor:
        # Floats are read once; masked bits would be written to memory in between.
        return rows.any(dim=1)

    def gather(self, rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return rows.index_select(0, indices)

    def fill(self, rows: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
        rows.zero_()
        rows.index_copy_(0, indices, values)


_torch = TorchOperations()
_choosing = threading.Lock()
_chosen: dict[torch.device, Operations] = {}


def operations_for(device: torch.device) -> Operations:
    """The operations for tensors on a device, chosen once for each; the choice may take seconds."""
    if device.type != "cuda" or os.environ.get(SETTING) == "off":
        return _torch
    with _choosing:
        if device not in _chosen:
            _chosen[device] = _choose(device)
        return _chosen[device]


def _choose(device: torch.device) -> Operations:
    """Triton's operations if they are installed, work, and take less time than torch's."""
    try:
        from sparsewire.device.triton_packing import TritonOperations

        candidates: list[Operations] = [_torch, TritonOperations()]
        return min(candidates, key=lambda each: _seconds(each, device))
    except ImportError:
        return _torch
    except Exception as error:
        # Triton compiles with tools of this machine, some of which may be missing.
        _logger.warning("%s does without Triton's kernels, which do not run: %s", device, error)
        return _torch


def _seconds(operations: Operations, device: torch.device) -> float:
    """Seconds of the best of a few turns of all operations, on the caller's stream."""
    rows = torch.zeros(_ROWS, _WIDTH, device=device)
    rows[::_SHARE] = 1
    return min(_turn(operations, rows) for _ in range(_TURNS))


def _turn(operations: Operations, rows: torch.Tensor) -> float:
    stream = torch.cuda.current_stream(rows.device)
    stream.synchronize()
    begin = time.perf_counter()
    indices = operations.mark(rows).nonzero().squeeze(1)
    operations.fill(bits(rows), indices, operations.gather(bits(rows), indices))
    stream.synchronize()
    return time.perf_counter() - begin
