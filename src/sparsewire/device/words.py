"""A tensor of any dtype as 32-bit words, for collectives that only move bits."""

from __future__ import annotations

import torch

from sparsewire.device.plain import is_plain

WORD = torch.int32
_WORD_BYTES = 4


def as_words(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """32-bit words that hold the tensor, and the same memory in the tensor's dtype and shape.

    That memory is the tensor itself if its layout allows, else a padded copy.
    """
    size = tensor.numel() * tensor.element_size()
    if _is_whole_words(tensor, size):
        return tensor.detach().view(-1).view(WORD), tensor
    memory = torch.zeros(
        -(-size // _WORD_BYTES) * _WORD_BYTES, dtype=torch.uint8, device=tensor.device
    )
    copy = memory[:size].view(tensor.dtype).view(tensor.shape)
    copy.copy_(tensor.detach())
    return memory.view(WORD), copy


def _is_whole_words(tensor: torch.Tensor, size: int) -> bool:
    offset = tensor.storage_offset() * tensor.element_size()
    aligned = not any(n % _WORD_BYTES for n in (size, offset, tensor.data_ptr()))
    return aligned and is_plain(tensor)
