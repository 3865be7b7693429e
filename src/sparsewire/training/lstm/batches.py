"""Cuts a long text into batches for truncated back-propagation through time."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Batches:
    """The part of a text that one rank trains on: `batch` rows, spread over the whole text.

    Every row is read in order, `length` tokens a step, and starts again at its end.
    """

    def __init__(
        self, tokens: npt.NDArray[np.int32], batch: int, length: int, rank: int, world_size: int
    ) -> None:
        stride = len(tokens) // (batch * world_size)
        first = rank * batch
        self._rows = tokens[first * stride : (first + batch) * stride].reshape(batch, stride)
        self._length = length
        self._steps_per_pass = (stride - 1) // length

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        """The inputs and the targets of one step, int64, each (batch, length)."""
        start = step % self._steps_per_pass * self._length
        window = self._rows[:, start : start + self._length + 1]
        tokens = torch.from_numpy(window.astype(np.int64))
        return tokens[:, :-1], tokens[:, 1:]
