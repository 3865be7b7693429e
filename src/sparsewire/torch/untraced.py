"""Keeps torch.compile out of functions that look like tensor code to it, and are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Have compiled programs call `function` as it is: a collective is more than its tensors."""
    disable: Callable[[Function], Function] = torch.compiler.disable
    return disable(function)
