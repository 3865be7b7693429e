"""Stands in for NCCL: one more gloo, for tensors on the CPU that count as on a device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from torch._C._distributed_c10d import PrefixStore

from sparsewire.torch.calls import forwarding
from sparsewire.torch.calls.forwarding import InnerBackends


@contextlib.contextmanager
def nccl_of_gloo() -> Iterator[None]:
    """Have groups that are made and used meanwhile find NCCL, in this process."""

    def make(store: Any, *where: Any) -> Any:
        return forwarding._gloo(PrefixStore("nccl", store), *where)

    with (
        patch.object(InnerBackends, "has_nccl", lambda self, device_type: device_type == "cpu"),
        patch.object(forwarding, "_nccl", make),
    ):
        yield


def serves(group: Any) -> bool:
    """Whether NCCL has served any call of a group here."""
    return "nccl" in group._inner_backends._made
