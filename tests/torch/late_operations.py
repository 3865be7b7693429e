"""Operations on tensors that run later than they are called, as those of a GPU do.

Whoever calls one gets its result at once, full of poison until a queue comes to it. What the host
asks of a tensor's contents, such as `nonzero` does, waits for the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

POISON = 0xA5
Task = Callable[[], None]


class Late(TorchDispatchMode):
    """Within it, `put` gets what tensors' operations do; `drain` has all of that done."""

    def __init__(self, put: Callable[[Task], None], drain: Task) -> None:
        super().__init__()
        self._put = put
        self._drain = drain

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if _only_looks_elsewhere(func):
            return func(*args, **kwargs)
        if not _has_known_shape(func, args):
            self._drain()
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            self._put(_as_now(lambda: func(*args, **kwargs)))
            return _written(func, args, kwargs)
        return self._made(func, args, kwargs)

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """What an operation gives that makes new tensors."""
        outputs = _poisoned(func, args, kwargs)
        if outputs is None:
            self._drain()
            return func(*args, **kwargs)

        def compute() -> None:
            made = tree_flatten(func(*args, **kwargs))[0]
            for output, each in zip(tree_flatten(outputs)[0], made, strict=True):
                output.copy_(each)

        self._put(_as_now(compute))
        return outputs


class Asking(TorchFunctionMode):
    """Sees what never becomes an operation where memory is the CPU's: a copy to the host."""

    def __init__(self, drain: Task) -> None:
        super().__init__()
        self._drain = drain

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in ("cpu", "numpy"):
            self._drain()
        return func(*args, **(kwargs or {}))


def _as_now(task: Task) -> Task:
    """The task, to be run in any thread as it would be in this one now."""
    is_inference = torch.is_inference_mode_enabled()

    def run() -> None:
        with _disable_current_modes(), torch.no_grad(), torch.inference_mode(is_inference):
            task()

    return run


def _only_looks_elsewhere(func: Any) -> bool:
    """Whether the result is another view of the same memory."""
    returned = [each.alias_info for each in func._schema.returns]
    return not func._schema.is_mutable and any(each is not None for each in returned)


def _has_known_shape(func: Any, args: Any) -> bool:
    """Whether it is one of torch's own on dense tensors, and keeps their memory where it is."""
    tensors = [each for each in tree_flatten(args)[0] if isinstance(each, torch.Tensor)]
    is_moving = func in (torch.ops.aten.set_.source_Tensor, torch.ops.aten.resize_.default)
    is_dense = all(each.layout is torch.strided for each in tensors)
    return func.namespace == "aten" and is_dense and not is_moving


def _written(func: Any, args: Any, kwargs: Any) -> Any:
    """Those of the arguments that an operation that writes to them returns."""
    named = dict(zip([each.name for each in func._schema.arguments], args, strict=False)) | kwargs
    places = {
        frozenset(each.alias_info.before_set): each.name
        for each in func._schema.arguments
        if each.alias_info is not None
    }
    found = [named[places[frozenset(each.alias_info.before_set)]] for each in func._schema.returns]
    return found[0] if len(found) == 1 else tuple(found) or None


def _poisoned(func: Any, args: Any, kwargs: Any) -> Any:
    """Tensors such as the operation will make; None where that depends on what it reads."""
    with _disable_current_modes():
        try:
            shapes = func(*tree_map(_shape_of, args), **tree_map(_shape_of, kwargs))
        except (RuntimeError, NotImplementedError):
            return None
        if not all(isinstance(each, torch.Tensor) for each in tree_flatten(shapes)[0]):
            return None
        return tree_map(_poison_like, shapes)


def _shape_of(value: Any) -> Any:
    """The same without memory."""
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return torch.device("meta") if isinstance(value, torch.device) else value


def _poison_like(shape: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype, device="cpu")
    made.untyped_storage().fill_(POISON)
    return made
