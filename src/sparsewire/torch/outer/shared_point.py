"""The shared point: what all replicas have alike, bit by bit, and the steps that move it.

It is theta_0 of each fragment, the state of the outer optimizer, and the number of rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sparsewire.torch.outer.fragments import Fragment

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


class SharedPoint:
    """The shared part of one fragment. `vector` is theta_0, float32, on the parameters' device."""

    def __init__(self, fragment: Fragment, make: MakeOptimizer) -> None:
        _checksum()
        self.fragment = fragment
        self.vector = fragment.read(fragment.empty())
        self.rounds = 0
        """How many rounds of this fragment have been committed."""
        # One parameter for each of the model's, so that optimizers see shapes. Its memory is the
        # vector's, and one optimizer for each fragment leaves the other fragments alone.
        self._parameters = [nn.Parameter(slot.of(self.vector)) for slot in fragment.slots]
        self.optimizer = make(self._parameters)

    def advance(self, mean: Tensor) -> None:
        """Take one step of the outer optimizer, with `mean` as its gradient."""
        for slot, parameter in zip(self.fragment.slots, self._parameters, strict=True):
            parameter.grad = slot.of(mean)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.rounds += 1

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state by name: theta_0, and the optimizer's."""
        found = {f"{slot.name}/theta": slot.of(self.vector) for slot in self.fragment.slots}
        for slot, parameter in zip(self.fragment.slots, self._parameters, strict=True):
            for key, value in sorted(self.optimizer.state.get(parameter, {}).items()):
                if isinstance(value, Tensor):
                    found[f"{slot.name}/{key}"] = value
        return found

    def numbers(self) -> dict[str, Any]:
        """What else there is: rounds, and the optimizer's numbers by name."""
        found: dict[str, Any] = {"rounds": self.rounds}
        for slot, parameter in zip(self.fragment.slots, self._parameters, strict=True):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if not isinstance(value, Tensor) and value is not None:
                    found[f"{slot.name}/{key}"] = value
        return found

    def load(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take over a state; raises ValueError if it is of another model."""
        self.check(tensors)
        self.rounds = int(numbers.get("rounds", self.rounds))
        for slot, parameter in zip(self.fragment.slots, self._parameters, strict=True):
            prefix = f"{slot.name}/"
            slot.of(self.vector).copy_(tensors[prefix + "theta"])
            state = self.optimizer.state[parameter]
            state.clear()
            for name, value in tensors.items():
                if name.startswith(prefix) and name != prefix + "theta":
                    state[name.removeprefix(prefix)] = _placed(value, slot.of(self.vector))
            for name, number in numbers.items():
                if name.startswith(prefix):
                    state[name.removeprefix(prefix)] = number

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise ValueError if a state is of another model."""
        for slot in self.fragment.slots:
            saved = tensors.get(f"{slot.name}/theta")
            if saved is None or saved.shape != slot.tensor.shape:
                raise ValueError(
                    f"the saved state has no {slot.name!r} of shape {tuple(slot.tensor.shape)}: "
                    "load it with the model that it was saved with"
                )

    def digest(self) -> bytes:
        """16 bytes that differ if any bit of the state does (xxh3-128); copies from devices."""
        state = _checksum()(json.dumps(self.numbers(), sort_keys=True).encode())
        tensors = self.tensors()
        state.update(_memory(self.vector))
        for name, tensor in tensors.items():
            if not name.endswith("/theta"):
                state.update(_memory(tensor))
        digest: bytes = state.digest()
        return digest


def _checksum() -> Any:
    """xxh3-128; raises ImportError that says what to install."""
    try:
        from xxhash import xxh3_128
    except ImportError as error:
        raise ImportError(
            "outer optimizers take checksums of what replicas share: pip install xxhash, or "
            "sparsewire[torch]"
        ) from error
    return xxh3_128


def _placed(value: Tensor, like: Tensor) -> Tensor:
    """A copy of a saved tensor; what has elements like the parameter is on its device."""
    return value.to(like.device, copy=True) if value.shape == like.shape else value.clone()


def _memory(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def maker_of(outer: Any, is_compressed: bool) -> MakeOptimizer:
    """A function that makes the outer optimizer for a list of parameters.

    `outer` is such a function, or a torch optimizer, whose class and settings are taken; None is
    Nesterov at .7 and momentum .9 (DiLoCo), or with compression plain steps of 1 (SparseLoCo: no
    outer momentum beside error feedback). Raises ValueError for an optimizer with groups.
    """
    if outer is None:
        return _plain if is_compressed else _nesterov
    if not isinstance(outer, Optimizer):
        made: MakeOptimizer = outer
        return made
    if len(outer.param_groups) != 1:
        raise ValueError(
            "the outer optimizer has several groups of parameters: pass a function that makes one "
            "for a list of parameters instead"
        )
    group = outer.param_groups[0]
    settings = {name: group[name] for name in outer.defaults}
    kind: Any = type(outer)
    return lambda parameters: kind(parameters, **settings)


def _nesterov(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, 0.7, 0.9, nesterov=True, fused=True)


def _plain(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, 1.0, fused=True)
