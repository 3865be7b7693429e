"""The collectives that sparsewire leaves to an inner backend (gloo or NCCL), as one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from sparsewire.torch import handed
from sparsewire.torch.callbacks import Callbacks
from sparsewire.torch.inner_backends import Backend, InnerBackends
from sparsewire.torch.untraced import untraced
from sparsewire.torch.work import Together

Serving = TypeVar("Serving", bound="Forwarding")

# What torch calls a process group, and what backends call it.
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
# Torch 2.13 renamed a few of the group's; backends kept the old ones.
RENAMED = {
    "all_gather_single": "_allgather_base",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
# Forms over lists of tensors that backends do not show to Python: one call for each pair.
PAIRWISE = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
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
    _inner_backends: InnerBackends
    _coalescing: list[dist.Work] | None = None

    if TYPE_CHECKING:  # Made from the tables above.

        def allgather(self, *args: Any, **kwargs: Any) -> Any: ...

        def reduce(self, *args: Any, **kwargs: Any) -> Any: ...

    def _serving(self: Serving) -> Serving:
        """The group that serves the calling thread."""
        raise NotImplementedError

    def _inner(self, device_type: str) -> Backend:
        """The inner backend for tensors of this device type."""
        return self._inner_backends.of(device_type)

    def _record(self, work: Any) -> dist.Work:
        """See every work on its way out; None is none."""
        if work is not None:
            if self._coalescing is not None:
                self._coalescing.append(work)
            handed.leave(work)
        return work  # type: ignore[no-any-return]

    def _start_coalescing(self, device: torch.device) -> None:
        group = self._serving()
        backend = group._inner(device.type)
        if backend.supports_coalescing:
            backend._start_coalescing()
        group._coalescing = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        group = self._serving()
        works, group._coalescing = group._coalescing or [], None
        backend = group._inner(device.type)
        if backend.supports_coalescing:
            works.append(backend._end_coalescing())
        return group._record(Together(works, [], group._callbacks))


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
for _names in RENAMED.items():
    _old = _names[1]
    for _name in _names:
        _made = _forward_pairs(_name, PAIRWISE[_old]) if _old in PAIRWISE else _forward(_name, _old)
        setattr(Forwarding, _name, _made)
