"""Messages of different lengths over collectives of equal ones: first the lengths, then bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from sparsewire.torch.hooks.gathering import Gathering

GatherRows = Callable[[torch.Tensor], Gathering[torch.Tensor]]
"""Gives everybody a row of bytes, the same length on all ranks; collective."""

_LENGTH = np.dtype("<i8")


def gather(gather_rows: GatherRows, message: bytes) -> Gathering[list[bytes]]:
    """Give everybody this rank's message; collective. Blocks until all lengths are known."""
    # Nothing else may be sent from a callback: groups differ in the order in which these run.
    length = np.array([len(message)], _LENGTH).view(np.uint8)
    rows = gather_rows(torch.from_numpy(length)).wait()
    lengths = rows.contiguous().numpy().view(_LENGTH)[:, 0].tolist()
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    gathering = gather_rows(torch.from_numpy(padded))
    return Gathering(gathering.work, lambda: _split(gathering.read(), lengths))


def _split(rows: torch.Tensor, lengths: list[int]) -> list[bytes]:
    return [row[:length].tobytes() for row, length in zip(rows.numpy(), lengths, strict=True)]
