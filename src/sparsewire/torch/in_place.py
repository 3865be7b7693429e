"""Collectives of the engine on torch tensors: each is a handle, and its result lies in the tensors.

A dense tensor is memory that the engine works on in place; a sparse_coo tensor gets new indices
and values. `timeout` is in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from sparsewire._core import OPS
from sparsewire.communicator import Communicator
from sparsewire.torch.engine_path import DTYPES, is_sparse
from sparsewire.torch.words import as_words
from sparsewire.work import Work


def all_reduce(communicator: Communicator, tensor: torch.Tensor, op: str, timeout: float) -> Work:
    """Start to reduce a tensor."""
    if is_sparse(tensor):
        work = communicator.all_reduce(tensor, op, None, True, timeout, result="sparse")
        return _into([tensor], work)
    memory = tensor if _is_plain(tensor) else tensor.detach().resolve_neg().contiguous()
    return _reduce(communicator, tensor, memory, memory, op, timeout)


def broadcast(communicator: Communicator, tensor: torch.Tensor, root: int, timeout: float) -> Work:
    """Start to give each rank the tensor of rank `root`.

    A dense one is summed up with zeros from everybody else: that leaves the bits of the source as
    they are, and zeros cost nothing to send.
    """
    if is_sparse(tensor):
        return _into([tensor], communicator.broadcast(tensor, root, True, timeout))
    words, memory = as_words(tensor)
    if root != communicator.rank:
        words.zero_()
    return _reduce(communicator, tensor, memory, words, "sum", timeout)


def reduce(
    communicator: Communicator, tensor: torch.Tensor, op: str, root: int, timeout: float
) -> Work:
    """Start to reduce a sparse tensor at rank `root`; the others keep theirs as they are."""
    return _into([tensor], communicator.reduce(tensor, op, root, True, timeout))


def all_gather(
    communicator: Communicator,
    outputs: Sequence[torch.Tensor],
    tensor: torch.Tensor,
    timeout: float,
) -> Work:
    """Start to put the sparse tensors of all ranks into `outputs`, one for each rank.

    Raises ValueError for outputs of another shape, dtype or number.
    """
    expected = [(tensor.shape, tensor.dtype, tensor.layout)] * communicator.world_size
    if [(output.shape, output.dtype, output.layout) for output in outputs] != expected:
        raise ValueError(
            f"all_gather of a sparse tensor needs {communicator.world_size} sparse outputs of "
            f"shape {tuple(tensor.shape)} and {tensor.dtype}, one for each rank"
        )
    return _into(outputs, communicator.all_gather(tensor, True, timeout))


def _into(tensors: Sequence[torch.Tensor], work: Work) -> Work:
    """Have sparse tensors hold the results of `work`, coalesced."""

    def take_over(results: torch.Tensor | list[torch.Tensor] | None) -> None:
        if results is None:
            return  # A reduce gives nothing to ranks other than its root.
        for tensor, result in zip(tensors, _listed(results), strict=True):
            # Takes over the result's memory, where `copy_` would copy it.
            tensor.data = result

    return work.deliver_to(take_over)


def _listed(results: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    return results if isinstance(results, list) else [results]


def _reduce(
    communicator: Communicator,
    tensor: torch.Tensor,
    memory: torch.Tensor,
    words: torch.Tensor,
    op: str,
    timeout: float,
) -> Work:
    """Reduce `words`: the elements of `memory`, or its bits. It is the tensor, or a copy of it."""
    address, count, dtype = words.data_ptr(), words.numel(), DTYPES[words.dtype]
    settle = partial(_settle, tensor, memory)
    return communicator.submit(address, address, count, dtype, OPS[op], settle, memory, timeout)


def _settle(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Copy the result to where it belongs."""
    if memory is not tensor:
        tensor.detach().copy_(memory)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory at `data_ptr` is the tensor, element by element."""
    return tensor.is_contiguous() and not tensor.is_neg()
