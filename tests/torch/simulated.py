"""Ranks with error feedback in one process: what DDP and the network do, without either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sparsewire.compress.message import Reader
from sparsewire.torch import hooks
from sparsewire.torch.hooks.sent import Record

Vectors = dict[str, torch.Tensor]


class SimulatedGroup:
    """As much of a process group as a state asks for."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._device_types = [torch.device("cpu")]

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


class SimulatedRanks:
    """Error feedback on `size` ranks whose model has one parameter of each of these sizes."""

    def __init__(
        self,
        size: int,
        sizes: Mapping[str, int],
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> None:
        self.dtype = dtype
        torch.manual_seed(4)
        self.model = nn.ParameterDict({name: torch.randn(n) for name, n in sizes.items()})
        self.states: list[Any] = []
        for rank in range(size):
            group: Any = SimulatedGroup(rank, size)
            state = hooks.ErrorFeedbackState(group, **{"min_elements": 0, **settings})
            state.register(self.model)
            self.states.append(state)

    def step(self, gradients: Sequence[Vectors]) -> Vectors:
        """What the optimizer gets from the ranks' gradients of some parameters.

        Those that a rank does not use have zeros there; those that none uses get nothing.
        """
        applied = {}
        for name, parameter in self.model.items():
            parts = [own.get(name, torch.zeros(parameter.numel())).clone() for own in gradients]
            self._settle(parameter, parts)
            if any(name in own for own in gradients):
                applied[name] = parts[0].to(self.dtype)
                assert all(part.equal(parts[0]) for part in parts)
        for state in self.states:
            state.step += 1
        return applied

    def _settle(self, parameter: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        own = [
            state.encode(parameter, part) for state, part in zip(self.states, parts, strict=True)
        ]
        message = b"".join(sent.record().encode() for sent in own)
        for state, part, sent in zip(self.states, parts, own, strict=True):
            reader = Reader(message)
            records = [Record.read(reader) for _ in self.states]
            reader.end()
            state.settle(parameter, part, sent, records, self.dtype)

    def owed(self) -> Vectors:
        """The mean over the ranks of what they owe, in float64."""
        return {
            name: torch.stack(
                [state.residuals.of(parameter).double() for state in self.states]
            ).mean(0)
            for name, parameter in self.model.items()
        }

    def saved(self) -> list[Any]:
        """The states of all ranks."""
        return [state.state_dict() for state in self.states]
