"""SPARSEWIRE_INSTEAD_OF: programs that ask torch for another backend get ours, without a change."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "SPARSEWIRE_INSTEAD_OF"

_log = logging.getLogger(__name__)


def attach() -> None:
    """From here on, `init_process_group` makes sparsewire groups in place of the named backends.

    It does so if SPARSEWIRE_INSTEAD_OF names the requested backend, or if none is requested.
    Groups of `new_group` have the backend that they name, or the default group's.
    """
    replaced = frozenset(os.environ[VARIABLE].lower().replace(" ", "").split(","))
    theirs = sys.modules["torch.distributed.distributed_c10d"].init_process_group
    ours = _instead_of(replaced, theirs)
    for module in _modules_of(theirs):
        module.init_process_group = ours


def _modules_of(function: Callable[..., None]) -> list[Any]:
    """The modules of torch that have this `init_process_group` under its name."""
    return [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("torch.distributed")
        and vars(module).get("init_process_group") is function
    ]


def _instead_of(replaced: frozenset[str], theirs: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(theirs)
    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        theirs(served(replaced, backend), *arguments, **named)

    return init_process_group


def served(replaced: frozenset[str], backend: str | None) -> str | None:
    """The backend to make for a requested one, such as "gloo", or "cpu:gloo,cuda:nccl".

    Ours serves all devices, so it replaces a whole list if one backend of it is to be replaced.
    """
    asked = [each.rpartition(":")[2] for each in (backend or "").lower().split(",")]
    if backend is not None and replaced.isdisjoint(asked):
        return backend
    _log.info("%s=%s: sparsewire serves the default group", VARIABLE, ",".join(sorted(replaced)))
    return "sparsewire"
