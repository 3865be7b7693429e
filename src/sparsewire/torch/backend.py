"""Registers the backend with torch.distributed and makes its process groups."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from sparsewire.torch.group import Group

NAME = "sparsewire"


def register() -> None:
    """Make "sparsewire" a backend name for CPU and CUDA tensors. Idempotent."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(settings: Any, options: object) -> Group:
    if options is not None:
        raise TypeError(
            f'backend "{NAME}" takes no pg_options, got {type(options).__name__}: leave them out; '
            "its settings are environment variables that start with SPARSEWIRE_"
        )
    return Group(settings.store, settings.group_rank, settings.group_size, timeout=settings.timeout)
