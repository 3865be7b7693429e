"""The all_reduces under test behind one small face: bind a buffer once, then call without args."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sparsewire.bench.errors import BenchError
from sparsewire.bench.patterns import Array
from sparsewire.bench.wire_limit import ring_bytes

Call = Callable[[], object]


class Backend(Protocol):
    """One implementation of all_reduce on this rank."""

    exact: bool
    """Whether results must have the bits of a sum in rank order."""

    def bind(self, buffer: Array) -> Call:
        """A call without arguments that reduces this buffer in place."""

    def counted_bytes_sent(self) -> int | None:
        """Bytes sent so far as the backend counts them; None where it does not."""

    def close(self) -> None: ...


def as_tensor(buffer: Array) -> torch.Tensor:
    """A tensor over the same memory; NumPy knows bfloat16 only as a foreign type."""
    if buffer.dtype.name == "bfloat16":
        return torch.from_numpy(buffer.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(buffer)


class GlooBackend:
    """torch.distributed's gloo group, the default group of the worker."""

    exact = False

    def __init__(self, op: str) -> None:
        self._average = op == "avg"
        self._op = getattr(dist.ReduceOp, "SUM" if self._average else op.upper())

        self._sent = 0

    def bind(self, buffer: Array) -> Call:
        tensor, ranks = as_tensor(buffer), dist.get_world_size()
        sends = round(ring_bytes(buffer.nbytes, ranks))

        def call() -> None:
            dist.all_reduce(tensor, self._op)
            if self._average:
                # Gloo has no average, so its users divide.
                tensor.div_(ranks)
            self._sent += sends

        return call

    def counted_bytes_sent(self) -> int:
        """What its ring algorithm sends by design, for gloo does not count."""
        return self._sent

    def close(self) -> None:
        """The default group also aligns the ranks, so the worker closes it."""


class SparsewireBackend:
    """A sparsewire communicator that meets its peers through the same store as gloo."""

    exact = True

    def __init__(self, op: str, store: Store, lanes: int | None, timeout_s: float) -> None:
        import sparsewire

        self._op = op
        self._communicator = sparsewire.init(
            store,
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            lanes=lanes,
            timeout=timeout_s,
        )

    def bind(self, buffer: Array) -> Call:
        return lambda: self._communicator.all_reduce(buffer, op=self._op)

    def counted_bytes_sent(self) -> int | None:
        return self._communicator.stats()["bytes_sent"]

    def close(self) -> None:
        self._communicator.close()


class TorchBackend:
    """sparsewire as a process group of torch.distributed, as training scripts call it."""

    exact = True

    def __init__(self, op: str) -> None:
        import sparsewire.torch  # noqa: F401

        self._op = getattr(dist.ReduceOp, op.upper())
        self._group: Any = dist.new_group(backend="sparsewire")

    def bind(self, buffer: Array) -> Call:
        tensor = as_tensor(buffer)
        return lambda: dist.all_reduce(tensor, self._op, group=self._group)

    def counted_bytes_sent(self) -> int | None:
        return None

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def open_backend(name: str, op: str, store: Store, lanes: int | None, timeout_s: float) -> Backend:
    """Open "gloo", "sparsewire" or "sparsewire-torch"; every rank must do so in the same order."""
    if name == "gloo":
        return GlooBackend(op)
    if name == "sparsewire":
        return SparsewireBackend(op, PrefixStore(name, store), lanes, timeout_s)
    if name == "sparsewire-torch":
        return TorchBackend(op)
    raise BenchError(f"backend {name!r} is unknown; use gloo, sparsewire or sparsewire-torch")
