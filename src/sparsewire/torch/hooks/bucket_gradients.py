"""The gradients of one bucket of DDP as hooks work on them."""

from __future__ import annotations

import torch
from torch._C._distributed_c10d import GradBucket

from sparsewire.device.accelerator import is_on_device
from sparsewire.device.copies import to_device, to_host

_HEAD = 1024
_DTYPES = {torch.float32, torch.float16, torch.bfloat16}


class BucketGradients:
    """`parts` are flat, float32, on the CPU, one for each of `parameters`.

    They are DDP's own memory where that is so, too. `dtype` is that of DDP's.

    Raises TypeError for gradients other than float32, float16 and bfloat16.
    """

    def __init__(self, bucket: GradBucket) -> None:
        self._buffer: torch.Tensor = bucket.buffer()
        self.dtype = self._buffer.dtype
        check_dtype(self.dtype)
        on_host = to_host(self._buffer) if is_on_device(self._buffer) else self._buffer
        self._flat = on_host.to(torch.float32)
        self.parameters: list[torch.Tensor] = bucket.parameters()
        self.parts = torch.split(self._flat, [parameter.numel() for parameter in self.parameters])

    def store(self) -> torch.Tensor:
        """Bring what is in `parts` to where DDP expects it, and return that."""
        if is_on_device(self._buffer):
            # Copied when this returns: the future that it goes into knows of no streams.
            to_device(self._buffer, self._flat)
        elif self._flat is not self._buffer:
            self._buffer.copy_(self._flat)
        return self._buffer


def check_dtype(dtype: torch.dtype) -> None:
    """Raise TypeError for gradients that cannot be compressed."""
    if dtype not in _DTYPES:
        raise TypeError(
            "gradients of float32, float16 and bfloat16 can be compressed, not of "
            f"{dtype}: convert the model"
        )


def is_zero(gradient: torch.Tensor) -> bool:
    """Whether all elements are zero; of float32, on the CPU. Not finite ones are not."""
    elements = gradient.numpy()
    # Of most gradients, the first few say it.
    return not (elements[:_HEAD].any() or elements.any())


def add_lost(residual: torch.Tensor, mean: torch.Tensor, dtype: torch.dtype) -> None:
    """Add what rounding to `dtype` takes from the mean, all float32 of one shape, to the residual.

    Nothing is added where the mean is not finite once it is rounded.
    """
    if dtype is not torch.float32:
        lost = mean - mean.to(dtype).to(torch.float32)
        residual += lost.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
