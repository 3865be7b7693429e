"""What gloo computes in the same processes, for comparison."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import sparsewire.torch


@functools.cache
def gloo_group() -> Any:
    """All ranks again, with torch's own backend. Every rank must come here at the same time."""
    return dist.new_group(backend="gloo")


def assert_like_gloo(body: Callable[[Any], Any]) -> None:
    """Check that `body(group)` returns the same for both backends, to the last bit."""
    expected = _outcome(body, gloo_group())
    actual = _outcome(body, dist.group.WORLD)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def _outcome(body: Callable[[Any], Any], group: Any) -> Any:
    try:
        return body(group)
    except RuntimeError as error:
        # Gloo came to some collectives late.
        if "does not support" not in str(error):
            raise
        return []


def engine_operations() -> int:
    """How many collectives the engine has done for the default group."""
    return sparsewire.torch.stats()["operations"]
