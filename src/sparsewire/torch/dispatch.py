"""Has torch 2.14 and newer bring all tensors to backends, through its dispatcher.

For some collectives the dispatcher knows only dense tensors. It resolves lazily negated, conjugated
and zero tensors into copies, so that results are lost. Here it learns to pass them all on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C import DispatchKey, DispatchKeySet

from sparsewire.torch.member import Member
from sparsewire.torch.reconfiguring import ReconfigurableBackend

# Collectives for which torch's dispatcher knows only dense tensors.
_DENSE_ONLY = ("allgather_", "allreduce_coalesced_", "broadcast_", "reduce_")
# Dispatch keys that resolve tensors, in the order in which torch comes to them.
_LAZY = (DispatchKey.ZeroTensor, DispatchKey.Negative, DispatchKey.Conjugate)
_GROUP = "process_group"

_library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]


def bring_all_tensors() -> None:
    """Have torch pass sparse tensors to all backends, and lazy tensors to ours, unchanged."""
    for name in _DENSE_ONLY:
        _bring_sparse(name)
    for name, place in _collectives().items():
        for key in _LAZY:
            if not _has_kernel(name, key.name):
                _library.impl(name, _lazy(name, place), key.name, with_keyset=True)


def _bring_sparse(name: str) -> None:
    for device in ("CPU", "CUDA"):
        key = f"Sparse{device}"
        if not _has_kernel(name, key):
            dense = partial(_as_dense, _operator(name), getattr(DispatchKey, device))
            _library.impl(name, dense, key, with_keyset=True)


def _as_dense(operator: Any, key: DispatchKey, _keys: DispatchKeySet, *arguments: Any) -> Any:
    """Run the operator as for dense tensors: it only finds the backend and calls it."""
    return operator.redispatch(DispatchKeySet(key), *arguments)


def _collectives() -> dict[str, int]:
    """The collectives that torch's dispatcher knows, with the place of their group argument."""
    known = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")]
    found = {}
    for name in (name.removeprefix("c10d::") for name in known):
        arguments = [argument.name for argument in _operator(name)._schema.arguments]
        if _GROUP in arguments:
            found[name] = arguments.index(_GROUP)
    return found


def _operator(name: str) -> Any:
    return getattr(torch.ops.c10d, name).default


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", key))


def _lazy(name: str, place: int) -> Callable[..., Any]:
    """The operator for lazy tensors: ours get them as they are, other backends resolved ones."""
    operator = _operator(name)
    below = torch._C._dispatch_keyset_full_after(_LAZY[-1])

    def call(keys: DispatchKeySet, *arguments: Any) -> Any:
        if not _is_ours(arguments[place], _first_tensor(arguments)):
            arguments = tuple(_resolved(argument) for argument in arguments)
        return operator.redispatch(keys & below, *arguments)

    return call


def _is_ours(group: Any, tensor: torch.Tensor) -> bool:
    """Whether our backend serves the tensor's device in a group, which is torch's C++ object."""
    unboxed: Any = dist.ProcessGroup.unbox(group)
    return isinstance(unboxed._get_backend(tensor.device), Member | ReconfigurableBackend)


def _first_tensor(arguments: Any) -> torch.Tensor:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument
        if isinstance(argument, list | tuple) and argument:
            return _first_tensor(argument)
    raise AssertionError("only tensors bring the dispatcher here")


def _resolved(argument: Any) -> Any:
    """A tensor or a list of tensors, resolved as torch resolves them."""
    if isinstance(argument, list | tuple):
        return [_resolved_tensor(each) for each in argument]
    return _resolved_tensor(argument)


def _resolved_tensor(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    dense = value.clone() if value._is_zerotensor() else value
    return dense.resolve_neg().resolve_conj()
