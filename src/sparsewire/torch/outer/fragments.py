"""Fragments: the parameters of a model, dealt out into parts that have rounds of their own, each
laid out as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sparsewire.torch.outer.passes import difference

Named = Mapping[str, Tensor]


class Slot(NamedTuple):
    """One parameter's place in the vector of its fragment: elements `begin` up to `end`.

    `tensor` is what trains: this worker's part of a parameter, or its float32 master. `copies` are
    the low-precision parameters that follow a master.
    """

    name: str
    tensor: Tensor
    begin: int
    end: int
    copies: tuple[Tensor, ...] = ()

    def of(self, vector: Tensor) -> Tensor:
        """The parameter's elements in a vector of the fragment, in the parameter's shape."""
        return vector[self.begin : self.end].view(self.tensor.shape)


class Fragment:
    """Parameters that one round adds up, of one device; vectors are float32, (elements,)."""

    def __init__(self, parameters: Named, masters: Mapping[str, Tensor]) -> None:
        self.slots: list[Slot] = []
        self.elements = 0
        for name, parameter in parameters.items():
            tensor, copies = local(parameter), tuple[Tensor, ...]()
            if name in masters:
                tensor, copies = local(masters[name]), (tensor,)
            end = self.elements + tensor.numel()
            self.slots.append(Slot(name, tensor, self.elements, end, copies))
            self.elements = end
        self.device = self.slots[0].tensor.device

    def empty(self) -> Tensor:
        """A vector of the fragment, undefined."""
        if self.device.type == "cpu":
            # NumPy asks for large pages, which passes and scattered sums are quicker in.
            return torch.from_numpy(np.empty(self.elements, np.float32))
        return torch.empty(self.elements, dtype=torch.float32, device=self.device)

    @torch.no_grad()
    def read(self, out: Tensor) -> Tensor:
        """Write the parameters as they are now to `out`."""
        for slot in self.slots:
            slot.of(out).copy_(slot.tensor)
        return out

    @torch.no_grad()
    def write(self, vector: Tensor) -> None:
        """Give the parameters these values, rounded to their dtypes."""
        for slot in self.slots:
            _give(slot, slot.of(vector))

    @torch.no_grad()
    def moved(
        self, base: Tensor, out: Tensor, owed: Tensor | None = None, beta: float = 0.0
    ) -> tuple[float, float]:
        """out = base - parameters + beta owed; the norms of base - parameters, and of `out`.

        The first is how far training has come from `base`. A parameter of lower precision started
        from `base` as its dtype has it, so rounding alone is no move.
        """
        norms = []
        for slot in self.slots:
            part = slice(slot.begin, slot.end)
            now, start = slot.tensor.reshape(-1), base[part]
            if now.dtype is not torch.float32:
                start, now = start.to(now.dtype).float(), now.float()
            norms.append(
                difference(start, now, out[part], None if owed is None else owed[part], beta)
            )
        moved, turned = zip(*norms, strict=True)
        return math.hypot(*moved), math.hypot(*turned)

    @torch.no_grad()
    def mix(self, point: Tensor, share: float) -> None:
        """parameters <- share * parameters + (1 - share) * point."""
        for slot in self.slots:
            mixed = torch.lerp(slot.of(point), slot.tensor.float(), share)
            _give(slot, mixed)


def _give(slot: Slot, values: Tensor) -> None:
    slot.tensor.copy_(values)
    for copy in slot.copies:
        copy.copy_(values)


def local(parameter: Tensor) -> Tensor:
    """The memory of this worker: the local part of a DTensor, else the tensor itself."""
    detached = parameter.detach()
    to_local = getattr(detached, "to_local", None)
    part: Tensor = detached if to_local is None else to_local()
    return part


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters with gradients, by name, each once; DDP's and compile's prefixes left out."""
    named = {
        name.replace("_orig_mod.", ""): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    # A model may have a part of its own that is called so.
    prefix = "module." if all(name.startswith("module.") for name in named) else ""
    return {name.removeprefix(prefix): parameter for name, parameter in named.items()}


def cut(
    parameters: Named, count: int, masters: Mapping[str, Tensor], strided: bool = False
) -> list[Fragment]:
    """`count` fragments of about as many elements each, or of every `count`-th layer (`strided`).

    Raises ValueError if there are fewer parameters, or layers, than fragments.
    """
    parts = _strided(parameters, count) if strided else _balanced(parameters, count)
    fragments: list[Fragment] = []
    for names in parts:
        if not names:
            raise ValueError(f"{count} fragments are more than there are parameters to deal out")
        fragments.append(Fragment({name: parameters[name] for name in names}, masters))
    return fragments


def _balanced(parameters: Named, count: int) -> list[list[str]]:
    """Names in their order, cut where the next part begins by number of elements."""
    total = sum(parameter.numel() for parameter in parameters.values())
    parts: list[list[str]] = [[] for _ in range(count)]
    seen, last = 0, -1
    for at, (name, parameter) in enumerate(parameters.items()):
        middle = seen + parameter.numel() / 2
        wanted = min(int(middle * count / max(total, 1)), count - 1)
        # No part stays empty: the last parameters are for the last parts, and none is left out.
        last = min(max(wanted, count - len(parameters) + at), last + 1)
        parts[last].append(name)
        seen += parameter.numel()
    return parts


def _strided(parameters: Named, count: int) -> list[list[str]]:
    """Every `count`-th layer, as Streaming DiLoCo deals them (arXiv 2501.18512)."""
    layers = layers_of(parameters)
    of = {layer: number % count for number, layer in enumerate(layers)}
    parts: list[list[str]] = [[] for _ in range(count)]
    for name in parameters:
        parts[of[_layer(name)]].append(name)
    return parts


def layers_of(parameters: Named) -> list[str]:
    """The layers that parameters belong to, in their order."""
    return list(dict.fromkeys(_layer(name) for name in parameters))


def _layer(name: str) -> str:
    """The layer of a parameter: its name up to the first number (blocks.3), else its module."""
    path = name.split(".")
    numbers = [at for at, part in enumerate(path) if part.isdecimal()]
    return ".".join(path[: numbers[0] + 1] if numbers else path[:-1] or path)


def masters_of(parameters: Named, masters: Iterable[Tensor] | Named | None) -> dict[str, Tensor]:
    """The float32 masters by their parameters' names; raises ValueError if they do not fit."""
    if masters is None:
        return {}
    named = dict(_paired(parameters, masters))
    for name, master in named.items():
        if name not in parameters or local(master).shape != local(parameters[name]).shape:
            raise ValueError(
                f"the master of {name!r} fits no parameter: pass float32 tensors of the same "
                "shapes, by name or one for each parameter in their order"
            )
        if master.dtype is not torch.float32:
            raise ValueError(f"the master of {name!r} is {master.dtype}: masters are float32")
    return named


def _paired(
    parameters: Named, masters: Iterable[Tensor] | Named
) -> Iterator[tuple[str, Any]] | Sequence[tuple[str, Any]]:
    if isinstance(masters, Mapping):
        return list(masters.items())
    listed = list(masters)
    if len(listed) != len(parameters):
        raise ValueError(f"{len(listed)} masters for {len(parameters)} parameters: pass one each")
    return zip(parameters, listed, strict=True)
