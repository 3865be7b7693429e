"""An operator that compresses where the vector is: arrays on the host, tensors on their device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.compress.compressor import Wrapper
from sparsewire.compress.marks import Marked
from sparsewire.torch.operators import tensor_form


class OnDevice(Wrapper):
    """`inner`, which also takes tensors: float32, shape (dimension,), of any device.

    A code and its message are the same to the last bit wherever they are made. A tensor of an
    operator without a form for tensors is copied to the host.
    """

    def __init__(self, inner: Compressor) -> None:
        super().__init__(inner)
        self.parts: Sequence[Compressor] = (inner,)
        self._form = tensor_form(inner)

    @property
    def error_bound(self) -> float:
        return self.inner.error_bound

    def code(self, x: Any, draws: Draws) -> Any:
        if not isinstance(x, Tensor) or self._form is None:
            return self.inner.code(x, draws)
        drawn = self._form.draw(x.contiguous(), draws)
        if bool(drawn.is_refused):
            raise CompressError("an element of the tensor is not finite, or too large to express")
        return self._form.code_of([part.cpu().numpy() for part in drawn.parts], drawn.known)

    def add(self, code: Any, total: Any, factor: float = 1.0) -> None:
        if not isinstance(total, Tensor):
            self.inner.add(code, total, factor)
        elif self._form is None:
            sent = torch.from_numpy(self.inner.reconstruct(code))
            total.add_(sent.to(total.device), alpha=factor)
        else:
            arrays = self._form.arrays_of(code)
            parts = [torch.tensor(each, device=total.device) for each in arrays]
            self._form.add(parts, total, factor, self._form.kept_elements(code))

    def marked(self, code: Any) -> Marked | None:
        return self.inner.marked(code)
