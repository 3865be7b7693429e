"""The gradients of one bucket of DDP, in the form that hooks use."""

from __future__ import annotations

import torch
from torch._C._distributed_c10d import GradBucket

from sparsewire.device.accelerator import is_on_device
from sparsewire.device.copies import to_device, to_host

_HEAD = 1024
_DTYPES = {torch.float32, torch.float16, torch.bfloat16}


class BucketGradients:
    """`parts` are flat float32 tensors on the CPU, one for each of `parameters`.

    They are DDP's own memory if that is float32 on the CPU. `dtype` is the dtype of DDP's memory.

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
        """Copy `parts` to the memory where DDP expects them, and return this memory."""
        if is_on_device(self._buffer):
            # The copy is done when this returns, because the result's future knows no streams.
            to_device(self._buffer, self._flat)
        elif self._flat is not self._buffer:
            self._buffer.copy_(self._flat)
        return self._buffer


def check_dtype(dtype: torch.dtype) -> None:
    """Raise TypeError for a dtype of gradients that cannot be compressed."""
    if dtype not in _DTYPES:
        raise TypeError(
            "gradients of float32, float16 and bfloat16 can be compressed, not of "
            f"{dtype}: convert the model"
        )


def is_zero(gradient: torch.Tensor) -> bool:
    """Whether all elements, float32 on the CPU, are zero. Infinities and NaN are not zero."""
    elements = gradient.numpy()
    # In most gradients, one of the first elements is not zero.
    return not (elements[:_HEAD].any() or elements.any())


def add_lost(residual: torch.Tensor, mean: torch.Tensor, dtype: torch.dtype) -> None:
    """Add to `residual` what `mean` loses by rounding to `dtype`; both are float32, of one shape.

    Nothing is added to elements whose rounded mean is not finite.
    """
    if dtype is not torch.float32:
        lost = mean - mean.to(dtype).to(torch.float32)
        residual += lost.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
