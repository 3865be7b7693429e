"""Operations of hooks on the mean of the ranks' vectors of one parameter, in any form."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class GradientMean(ABC):
    """The mean of the ranks' vectors of one parameter.

    All vectors are float32, shape (elements of the parameter,), on the gradient's device.
    """

    @abstractmethod
    def add(self, base: Tensor, out: Tensor) -> None:
        """Write `base` plus the mean to `out`."""

    @abstractmethod
    def move(self, vector: Tensor, rate: float) -> None:
        """Add `rate` times the mean to `vector`. The mean must not be used after that."""

    @abstractmethod
    def add_own(self, vector: Tensor, rate: float) -> None:
        """Add `rate` times this rank's sent vector to `vector`."""

    @abstractmethod
    def write(self, out: Tensor) -> None:
        """Write the mean to `out`."""

    @abstractmethod
    def feed_back(self, gradient: Tensor, residual: Tensor) -> None:
        """Write `gradient` minus this rank's sent vector to `residual`, the mean to `gradient`."""

    def follow(self, shift: Tensor, mean_shift: Tensor, gradient: Tensor, rate: float) -> None:
        """DIANA's step: write `mean_shift` plus the mean to `gradient`. Then add `rate` times the
        mean to `mean_shift`, and `rate` times this rank's sent vector to `shift`. The mean must not
        be used after that.
        """
        self.add_own(shift, rate)
        self.add(mean_shift, gradient)
        self.move(mean_shift, rate)
