"""Former names of packages and parameters: they lead to what these are now, and warn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _FormerName(MetaPathFinder, Loader):
    """Finds `former.X` as `present.X`, the same module, so that there are no classes twice.

    `modules` has the present names of those X that have others: ".Y" in the package, or whole.
    """

    def __init__(self, former: str, present: str, modules: Mapping[str, str]) -> None:
        self._former, self._present, self._modules = former, present, modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name.startswith(f"{self._former}.") else None

    def exec_module(self, module: ModuleType) -> None:
        self.lead(module.__name__)

    def lead(self, name: str) -> None:
        module = name.removeprefix(self._former)
        present = self._modules.get(module[1:], module) or "."
        sys.modules[name] = import_module(present, package=self._present)


def lead(former: str, present: str, modules: Mapping[str, str]) -> None:
    """Have the package called `former`, which is being imported, be `present`; warn who imports.

    `modules` are those of its modules that have other names now.
    """
    warnings.warn(f"{former} is now {present}", DeprecationWarning, stacklevel=3)
    finder = _FormerName(former, present, modules)
    sys.meta_path.insert(0, finder)
    finder.lead(former)


def renamed(**present: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take parameters by former names, the keys, as well, and warn."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for former in present.keys() & kwargs.keys():
                warn_of(f"the parameter {former!r}", repr(present[former]))
                kwargs[present[former]] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate


def warn_of(former: str, present: str) -> None:
    """Warn who calls the caller that it uses a former name."""
    warnings.warn(f"{former} is now {present}", DeprecationWarning, stacklevel=3)
