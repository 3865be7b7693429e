"""Tensors as plain memory: in one piece, with the elements stored as they are read.

Code that reads and writes at their addresses, here and in torch's backends, knows no strides, no
marks by which torch negates and conjugates elements only as they are read, and no zeros without
memory.
"""

from __future__ import annotations

import torch

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a dense tensor's elements lie at `data_ptr`, one after another, as they are read."""
    is_lazy = tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor()
    return tensor.is_contiguous() and not is_lazy


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The dense tensor itself, or a copy of it if it is not plain."""
    if is_plain(tensor):
        return tensor
    whole = tensor.detach().resolve_neg().resolve_conj().contiguous()
    return whole.clone() if whole._is_zerotensor() else whole


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that moves change no bits, not even of a NaN."""
    return tensor.view(_BITS[tensor.element_size()])
