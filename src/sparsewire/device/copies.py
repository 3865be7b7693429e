"""Whole copies between a device and host memory, for code that computes on the host.

Copies use pinned memory and our own streams, so they wait for nothing else on the device. Copies on
the host do not keep pinned memory, because many of them may wait there at once.
"""

from __future__ import annotations

from functools import partial

import torch

from sparsewire.device.staging import staging_of


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory of a contiguous tensor, after the work in the caller's stream."""
    staging = staging_of(tensor.device)
    staging.called(tensor).synchronize()
    with staging.down.loan() as loan:
        pinned = loan.take_like(tensor)
        staging.down.enqueue(partial(_move, pinned, tensor.data)).synchronize()
        return torch.empty_like(pinned, pin_memory=False).copy_(pinned)


def to_device(tensor: torch.Tensor, on_host: torch.Tensor) -> None:
    """Write into a contiguous tensor that no stream uses; blocks until it is written."""
    up = staging_of(tensor.device).up
    up.hold(tensor)
    with up.loan() as loan:
        pinned = loan.take_like(tensor)
        pinned.copy_(on_host)
        up.enqueue(partial(_move, tensor.data, pinned)).synchronize()


def _move(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)
