"""The hooks for any compressor, and groups to run them on, as several tests need them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from reference import gloo_group
from torch.nn.parallel import DistributedDataParallel

from sparsewire.torch import hooks

State = hooks.ErrorFeedbackState | hooks.DianaState

STATES: dict[str, type[State]] = {
    "feedback": hooks.ErrorFeedbackState,
    "diana": hooks.DianaState,
}
HOOKS: dict[type[State], Callable[..., Any]] = {
    hooks.ErrorFeedbackState: hooks.error_feedback_hook,
    hooks.DianaState: hooks.diana_hook,
}
# An operator for each of them whose messages differ in length from rank to rank.
OPERATORS = {"feedback": "threshold:0.02", "diana": "qsgd:7"}


def make_state(kind: str, group: Any = None, **settings: Any) -> State:
    """A state that compresses every parameter, unless told otherwise."""
    return STATES[kind](group, **{"compressor": OPERATORS[kind], "min_elements": 0, **settings})


def attach(model: DistributedDataParallel, state: State) -> None:
    """Have DDP call the hook of this state."""
    state.register(model)
    model.register_comm_hook(state, HOOKS[type(state)])


def with_hook(state: State) -> Callable[[Any, Any], Any]:
    """As `models.train` wants it."""

    def prepare(model: Any, group: Any) -> Any:
        attach(model, state)
        return model

    return prepare


def group_of(backend: str) -> Any:
    """All ranks on a backend."""
    return gloo_group() if backend == "gloo" else dist.group.WORLD


@functools.cache
def subgroup(ranks: tuple[int, ...], backend: str = "sparsewire") -> Any:
    """Some ranks on a backend, made once. Every rank must come here at the same time."""
    return dist.new_group(list(ranks), backend=backend)


def alone() -> Any:
    """A group of this rank only: the mean over it is what this rank sends."""
    groups = [subgroup((rank,)) for rank in range(dist.get_world_size())]
    return groups[dist.get_rank()]


def assert_same_everywhere(value: torch.Tensor) -> None:
    """All ranks of the default group have the same bits."""
    everywhere = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, value)
    assert all(each.equal(value) for each in everywhere)
