"""All replicas of an outer optimizer in plain loops, as its documentation has the formulas.

No threads, no communication and no class of `sparsewire.torch.outer`: only operators and torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from outer_threads import train_step
from torch import Tensor, nn

from sparsewire.compress import Draws, as_contraction, parse

Outer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Method:
    """The settings of a run, as `OuterOptimizer` has them."""

    outer: Outer
    every: int = 4
    compressor: str = "dense"
    decay: float = 1.0
    fragments: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3, 4),)
    """Of each fragment the numbers of its parameters."""
    delay: int = 0
    mix: float | str = 0.0


class Point:
    """Parameters of one fragment that all share: theta_0, and the outer optimizer of it."""

    def __init__(self, parameters: Sequence[Tensor], outer: Outer) -> None:
        self.values = [nn.Parameter(each.detach().clone()) for each in parameters]
        self.optimizer = outer(self.values)

    def vector(self) -> Tensor:
        return flattened(self.values)

    def advance(self, mean: Tensor) -> None:
        for value, part in zip(self.values, parts_of(mean, self.values), strict=True):
            value.grad = part.clone()
        self.optimizer.step()


class Reference:
    """`models` train side by side with `inners`; all begin with the weights of the first."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        inners: Sequence[Any],
        method: Method,
        train_step: Callable[..., None] = train_step,
    ) -> None:
        self.models = models
        self._train_step = train_step
        self.inners = inners
        self.method = method
        self.rounds = 0
        self._under_way: tuple[int, int, list[Tensor]] | None = None
        for model in models[1:]:
            model.load_state_dict(models[0].state_dict())
        self.points = [Point(self.part(models[0], each), method.outer) for each in method.fragments]
        self.owed = [[torch.zeros_like(point.vector()) for _ in models] for point in self.points]

    def part(self, model: nn.Module, numbers: Sequence[int]) -> list[Tensor]:
        parameters = list(model.parameters())
        return [parameters[number] for number in numbers]

    def theta(self) -> Tensor:
        """The shared point of all parameters, in the model's order."""
        return self._in_order([point.values for point in self.points])

    def owed_by(self, rank: int) -> Tensor:
        """What a replica owes, in the same order; nothing without a compressor."""
        if self.method.compressor == "dense":
            return torch.zeros(0)
        owed = [
            parts_of(each[rank], point.values)
            for point, each in zip(self.points, self.owed, strict=True)
        ]
        return self._in_order(owed)

    def _in_order(self, parts: Sequence[Sequence[Tensor]]) -> Tensor:
        """Tensors of the parameters of each fragment as one vector, in the model's order."""
        numbers = [number for each in self.method.fragments for number in each]
        tensors = [tensor for each in parts for tensor in each]
        of = dict(zip(numbers, tensors, strict=True))
        return flattened([of[number] for number in sorted(of)])

    def train(self, steps: int, begin: int = 0) -> None:
        for step in range(begin + 1, begin + steps + 1):
            for rank, model in enumerate(self.models):
                self._train_step(model, self.inners[rank], rank, step)
            self.stepped(step)

    def stepped(self, step: int) -> None:
        method = self.method
        if self._under_way is not None and step >= self._under_way[0]:
            self.land()
        count = len(method.fragments)
        if step * count // method.every == (step - 1) * count // method.every:
            return
        number = self.rounds % count
        left = [flattened(self.part(model, method.fragments[number])) for model in self.models]
        self.round(number)
        self._under_way = (step + method.delay, number, left)
        if not method.delay:
            self.land()

    def round(self, number: int) -> None:
        """Move the shared point of one fragment."""
        point = self.points[number]
        before = point.vector()
        total = torch.zeros_like(before)
        for rank, model in enumerate(self.models):
            delta = before - flattened(self.part(model, self.method.fragments[number]))
            total += self.message(delta, number, rank)
        self.rounds += 1
        point.advance(total / len(self.models))

    def message(self, delta: Tensor, number: int, rank: int) -> Tensor:
        """What a replica sends; what it does not is owed."""
        if self.method.compressor == "dense":
            return delta
        owed = self.owed[number][rank]
        turned = delta + self.method.decay * owed
        operator = as_contraction(parse(self.method.compressor, delta.numel()))
        sent = torch.from_numpy(operator.compress(turned.numpy(), Draws(0)).copy())
        self.owed[number][rank] = turned - sent
        return sent

    def land(self) -> None:
        """Bring each replica's parameters together with the shared point that they caused."""
        if self._under_way is None:
            return
        _, number, left = self._under_way
        self._under_way = None
        point = self.points[number].vector()
        for model, begun in zip(self.models, left, strict=True):
            parameters = self.part(model, self.method.fragments[number])
            now = flattened(parameters)
            if self.method.mix == "corrected":
                merged = point + (now - begun)
            else:
                share = float(self.method.mix)
                merged = share * now + (1 - share) * point
            give(parameters, merged)


def flattened(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.detach().reshape(-1) for each in parameters])


def parts_of(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    pieces = vector.split([each.numel() for each in like])
    return [piece.view_as(each) for piece, each in zip(pieces, like, strict=True)]


def give(parameters: Sequence[Tensor], vector: Tensor) -> None:
    with torch.no_grad():
        for parameter, part in zip(parameters, parts_of(vector, parameters), strict=True):
            parameter.copy_(part)
