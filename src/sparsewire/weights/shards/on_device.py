"""PyTorch's tensors on their devices: compared, and written to, where they are.

Only elements that changed cross. Bits are compared as integers, so every dtype goes the same way,
on CPUs as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsewire._core import DELTA_CHUNK
from sparsewire.errors import InputError
from sparsewire.weights.shards.changes import Bits, Indices, as_bits
from sparsewire.weights.shards.targets import Scattered
from sparsewire.weights.shards.windows import Where
from sparsewire.weights.versions.tensors import FORMATS, Bytes, Tensor

if TYPE_CHECKING:
    import torch

# Compared at once: large, as each time costs several starts of kernels and waits for them. The
# device needs memory for a byte of each, and at most 8 bytes for a half of them.
_AT_ONCE = 16 * DELTA_CHUNK
_POSITION_BYTES = 4


class Crossed(NamedTuple):
    """What came to the host of a chunk of `elements`: `bits` of those that changed, by their
    ascending positions; or of all, and then these are None."""

    elements: int
    positions: Indices | None
    bits: Bits

    def write(self, chunk: Bytes) -> None:
        """Make the chunk's last version the new one, in place."""
        target = as_bits(chunk, self.bits.itemsize)
        target[slice(None) if self.positions is None else self.positions] = self.bits

    def over(self, chunk: Bytes) -> Bytes:
        """The new version of the chunk, of which `chunk` has the last; itself if they are equal."""
        if self.positions is not None and not len(self.positions):
            return chunk
        fresh = np.empty_like(chunk) if self.positions is None else np.array(chunk)
        self.write(fresh)
        return fresh


def crossing(base: torch.Tensor, fresh: torch.Tensor) -> Iterator[Crossed]:
    """What to bring to the host of each chunk of `fresh`, whose last version is `base`.

    Both are on one device, and have one dtype and shape, or this raises InputError. A chunk crosses
    whole where that is fewer bytes.
    """
    alike = (base.dtype, base.shape, base.device) == (fresh.dtype, fresh.shape, fresh.device)
    if not alike:
        raise InputError(
            f"the last version is {base.dtype} of shape {list(base.shape)} on {base.device}, and "
            f"the new one {fresh.dtype} of {list(fresh.shape)} on {fresh.device}: compare what is "
            "alike"
        )
    pieces = zip(_split(_bits(base), _AT_ONCE), _split(_bits(fresh), _AT_ONCE), strict=True)
    for old, new in pieces if fresh.numel() else ():
        yield from _crossing(old, new)


def chunks_over(kept: Tensor, base: torch.Tensor, fresh: torch.Tensor) -> Iterator[Bytes]:
    """The chunks of `fresh` in host memory, like those of a `Tensor`; `kept` is `base` there.

    Chunks that did not change are those of `kept` itself, and no others are kept. Raises InputError
    like `crossing`.
    """
    for chunk, crossed in zip(kept.chunks(), crossing(base, fresh), strict=True):
        yield crossed.over(chunk)


def _crossing(old: torch.Tensor, new: torch.Tensor) -> Iterator[Crossed]:
    import torch

    differs = old != new
    rows, width = _split(differs, DELTA_CHUNK), new.element_size()
    changed: list[int] = torch.stack([row.count_nonzero() for row in rows]).tolist()
    for place, row in enumerate(rows):
        if changed[place] * (_POSITION_BYTES + width) >= len(row) * width:
            changed[place] = -1
            row.zero_()
    at = differs.nonzero().squeeze(1)
    positions = _on_host(at.to(torch.int32)) if len(at) else np.empty(0, np.int32)
    bits = _on_host(new.index_select(0, at)) if len(at) else np.empty(0, positions.dtype)
    end = 0
    for place, chunk in enumerate(_split(new, DELTA_CHUNK)):
        if changed[place] < 0:
            yield Crossed(len(chunk), None, _unsigned(_on_host(chunk)))
            continue
        begin, end = end, end + changed[place]
        own = positions[begin:end].astype(np.int64) - place * DELTA_CHUNK
        yield Crossed(len(chunk), own, _unsigned(bits[begin:end]))


class DeviceTarget(NamedTuple):
    """A tensor on any device to write to, as `Target` says; `dtype` is its name in safetensors.

    Raises InputError for one that is not in one piece.
    """

    dtype: str
    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def scattering(self, positions: Indices, form: Scattered, payload: NDArray[Any]) -> DeviceWrite:
        bits = self._bits()
        at = _like(bits, positions)
        values = _like(bits, payload)
        if form == "steps":
            values = values.to(bits.dtype) + _ordered(bits[at], self.dtype)
            values = _ordered(values, self.dtype)
        elif form == "xor":
            values = bits[at] ^ values
        return DeviceWrite(bits, at, values)

    def copying(self, where: Where, bits: Bits) -> DeviceWrite:
        own = self._bits().view(self.tensor.shape)[where]
        return DeviceWrite(own, None, _like(own, np.asarray(bits)))

    def _bits(self) -> torch.Tensor:
        if not self.tensor.is_contiguous():
            raise InputError(
                f"a tensor of shape {list(self.shape)} does not lie in one piece, so that it "
                "cannot be written in place: make it contiguous()"
            )
        return _bits(self.tensor)


class DeviceWrite(NamedTuple):
    """`bits` on the device for elements of `memory`, at positions, or for all of it."""

    memory: torch.Tensor
    positions: torch.Tensor | None
    bits: torch.Tensor

    @property
    def nbytes(self) -> int:
        held = [self.bits] if self.positions is None else [self.bits, self.positions]
        return sum(each.numel() * each.element_size() for each in held)

    def write(self) -> None:
        if self.positions is None:
            self.memory.copy_(self.bits)
        else:
            self.memory.index_copy_(0, self.positions, self.bits)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements as signed integers, in a row: the same memory, if it lies in one piece."""
    import torch

    from sparsewire.device.plain import plain

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.element_size() not in integers:
        raise InputError(f"{tensor.dtype} is not known: use elements of 1, 2, 4 or 8 bytes")
    return plain(tensor.detach()).view(-1).view(integers[tensor.element_size()])


def _split(row: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    return row.split(size)  # type: ignore[no-untyped-call, no-any-return]


def _ordered(bits: torch.Tensor, dtype: str) -> torch.Tensor:
    """As `changes.ordered`, of signed integers."""
    import torch

    if not FORMATS[dtype].floating:
        return bits
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def _on_host(tensor: torch.Tensor) -> NDArray[Any]:
    from sparsewire.device.accelerator import is_on_device
    from sparsewire.device.copies import to_host

    return np.asarray((to_host(tensor) if is_on_device(tensor) else tensor.cpu()).numpy())


def _like(memory: torch.Tensor, values: NDArray[Any]) -> torch.Tensor:
    """The values, as signed integers, on the device of `memory`."""
    import torch

    signed = values.view(f"i{values.itemsize}")
    return torch.from_numpy(signed).to(memory.device)


def _unsigned(values: NDArray[Any]) -> Bits:
    return values.view(f"u{values.itemsize}")
