"""The gradients of one bucket of DDP as hooks work on them."""

from __future__ import annotations

import torch
from torch._C._distributed_c10d import GradBucket

_DTYPES = {torch.float32, torch.float16, torch.bfloat16}


class BucketGradients:
    """`parts` are flat, float32, on the CPU, one for each of `parameters`.

    They are DDP's own memory where that is so, too.

    Raises TypeError for gradients other than float32, float16 and bfloat16.
    """

    def __init__(self, bucket: GradBucket) -> None:
        self._buffer: torch.Tensor = bucket.buffer()
        if self._buffer.dtype not in _DTYPES:
            raise TypeError(
                "gradients of float32, float16 and bfloat16 can be compressed, not of "
                f"{self._buffer.dtype}: convert the model"
            )
        self._flat = self._buffer.to("cpu", torch.float32)
        self.parameters: list[torch.Tensor] = bucket.parameters()
        self.parts = torch.split(self._flat, [parameter.numel() for parameter in self.parameters])

    def store(self) -> torch.Tensor:
        """Bring what is in `parts` to where DDP expects it, and return that."""
        if self._flat is not self._buffer:
            self._buffer.copy_(self._flat)
        return self._buffer
