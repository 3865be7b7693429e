"""What hooks do with the mean of what the ranks sent of one parameter, whatever form it has."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class GradientMean(ABC):
    """All vectors are float32, shape (elements of the parameter,), where the gradient is."""

    @abstractmethod
    def add(self, base: Tensor, out: Tensor) -> None:
        """Write `base` plus the mean."""

    @abstractmethod
    def move(self, vector: Tensor, rate: float) -> None:
        """Add `rate` times the mean, which is gone then, to a vector."""

    @abstractmethod
    def add_own(self, vector: Tensor, rate: float) -> None:
        """Add `rate` times what this rank sent to a vector."""

    @abstractmethod
    def write(self, out: Tensor) -> None:
        """Write the mean."""

    @abstractmethod
    def feed_back(self, gradient: Tensor, residual: Tensor) -> None:
        """Have what this rank did not send of a gradient as residual, and the mean as gradient."""

    def follow(self, shift: Tensor, mean_shift: Tensor, gradient: Tensor, rate: float) -> None:
        """DIANA's step: write `mean_shift` plus the mean as gradient, then move `mean_shift` by
        `rate` times the mean, which is gone then, and `shift` by `rate` times what this rank sent.
        """
        self.add_own(shift, rate)
        self.add(mean_shift, gradient)
        self.move(mean_shift, rate)
