"""Memory for sums, kept from step to step: new pages would cost more than the sums themselves."""

from __future__ import annotations

import threading

import torch


class Scratch(threading.local):
    """One vector for each thread, as long as the longest that was asked for."""

    def __init__(self) -> None:
        self._vector = torch.empty(0)

    def zeros(self, elements: int) -> torch.Tensor:
        """Float32 zeros on the CPU, shape (elements,), until the next call on this thread."""
        if self._vector.numel() < elements:
            self._vector = torch.empty(elements)
        return self._vector[:elements].zero_()
