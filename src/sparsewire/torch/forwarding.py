"""The collectives that sparsewire leaves to an inner backend (gloo or NCCL), as one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from sparsewire.torch.callbacks import Callbacks
from sparsewire.torch.inner_backends import Backend
from sparsewire.torch.untraced import untraced
from sparsewire.torch.work import Together

Serving = TypeVar("Serving", bound="Forwarding")

# What torch calls a process group, and what backends call it: some names differ, and torch 2.13
# renamed a few of the group's while backends kept the old ones.
SAME = (
    "allgather",
    "allgather_coalesced",
    "alltoall",
    "gather",
    "gather_into_tensor",
    "gather_single",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
)
RENAMED = {
    "_allgather_base": "_allgather_base",
    "all_gather_single": "_allgather_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "alltoall_base": "alltoall_base",
    "all_to_all_single": "alltoall_base",
}
# Forms over lists of tensors that backends do not show to Python: one call for each pair.
PAIRWISE = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "all_gather_single_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "_reduce_scatter_base",
}


def device_type(arguments: Iterable[Any]) -> str:
    """Device type of the first tensor among the arguments, however nested; "cpu" without any."""
    tensor = next(_tensors(arguments), None)
    return "cpu" if tensor is None else tensor.device.type


def _tensors(arguments: Iterable[Any]) -> Any:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(argument)


class Forwarding:
    """Every collective of a process group that the engine has no part in, as calls to a backend."""

    _callbacks: Callbacks

    if TYPE_CHECKING:  # Made from the tables below.

        def allgather(self, *args: Any, **kwargs: Any) -> Any: ...

        def reduce(self, *args: Any, **kwargs: Any) -> Any: ...

    def _serving(self: Serving) -> Serving:
        """The group that serves the calling thread."""
        raise NotImplementedError

    def _inner(self, device_type: str) -> Backend:
        """The inner backend for tensors of this device type."""
        raise NotImplementedError

    def _record(self, work: Any) -> dist.Work:
        """See every work on its way out."""
        raise NotImplementedError


def _forward(name: str, inner_name: str) -> Any:
    def collective(self: Forwarding, *args: Any, **kwargs: Any) -> Any:
        group = self._serving()
        inner = group._inner(device_type((*args, *kwargs.values())))
        return group._record(getattr(inner, inner_name)(*args, **kwargs))

    return _method(name, collective)


def _forward_pairs(name: str, inner_name: str) -> Any:
    def collective(
        self: Forwarding,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        group = self._serving()
        call = getattr(group._inner(device_type(outputs)), inner_name)
        pairs = zip(outputs, inputs, strict=True)
        works = [call(*pair, *args, **kwargs) for pair in pairs]
        return group._record(Together(works, outputs, group._callbacks))

    return _method(name, collective)


def _method(name: str, function: Any) -> Any:
    function.__name__ = name
    function.__qualname__ = f"Forwarding.{name}"
    return untraced(function)


for _name in SAME:
    setattr(Forwarding, _name, _forward(_name, _name))
for _name, _inner_name in RENAMED.items():
    setattr(Forwarding, _name, _forward(_name, _inner_name))
for _name, _inner_name in PAIRWISE.items():
    setattr(Forwarding, _name, _forward_pairs(_name, _inner_name))
