"""The fingerprint of a version: one checksum over its tensors, whatever files they are in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from sparsewire.weights.versions.coding import checksum


class Described(Protocol):
    """What has a dtype, by the name that safetensors gives it, and a shape."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def fingerprint(tensors: Mapping[str, Described], sums: Mapping[str, bytes]) -> bytes:
    """Of these tensors, whose checksums are `sums`: it is the same for the same names and bits."""
    parts = [
        json.dumps([name, tensor.dtype, list(tensor.shape)]).encode() + sums[name]
        for name, tensor in sorted(tensors.items())
    ]
    return checksum(b"".join(parts))
