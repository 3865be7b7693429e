"""Whole copies between a device and host memory, for those who compute on the host.

Through pinned memory and streams of our own, so that they wait for nothing else on the device. The
pinned memory is not kept: much may wait on the host at once.
"""

from __future__ import annotations

from functools import partial

import torch

from sparsewire.device.staging import Way, staging_of


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory of a contiguous tensor, as the caller's stream leaves it."""
    staging = staging_of(tensor.device)
    staging.follow_caller(tensor)
    memory, pinned = _pinned(staging.down, tensor)
    staging.down.enqueue(partial(_move, pinned, tensor.data)).synchronize()
    on_host = torch.empty_like(pinned, pin_memory=False).copy_(pinned)
    staging.down.pool.give_back(memory)
    return on_host


def to_device(tensor: torch.Tensor, on_host: torch.Tensor) -> None:
    """Write into a contiguous tensor that no stream is at; blocks until it is done."""
    up = staging_of(tensor.device).up
    up.hold(tensor)
    memory, pinned = _pinned(up, tensor)
    pinned.copy_(on_host)
    there = up.enqueue(partial(_move, tensor.data, pinned))
    up.pool.give_back(memory, there)
    there.synchronize()


def _pinned(way: Way, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory of the pool, and its beginning with the shape and dtype of `like`."""
    nbytes = like.numel() * like.element_size()
    memory = way.pool.take(nbytes)
    return memory, memory[:nbytes].view(like.dtype).view(like.shape)


def _move(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)
