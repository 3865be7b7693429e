"""One tensor's way to the host, into a collective and back, in the form that suits what it holds.

Between `send` and `receive` the engine works on the tensor that `send` gives: a sparse tensor of
rows, or a dense one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from sparsewire.device.accelerator import Event
from sparsewire.device.packing import BLOCK, Blocks
from sparsewire.device.plain import plain
from sparsewire.device.rows import Rows, download, upload
from sparsewire.device.staging import Staging, Way
from sparsewire.device.words import as_words


def follow_caller(staging: Staging, tensor: torch.Tensor) -> None:
    """In the caller's thread, which has enqueued what the tensor will hold: read it after that."""
    is_sparse = tensor.layout is torch.sparse_coo
    staging.follow_caller(*([tensor._indices(), tensor._values()] if is_sparse else [tensor]))


class Transfer(ABC):
    """May be made, and used, in other threads than the caller's, once that is followed."""

    def __init__(self, staging: Staging, tensor: torch.Tensor) -> None:
        self.staging = staging
        self.tensor = tensor
        self.arguments: dict[str, Any] = {}
        """How an all_reduce is to be called for what was sent."""
        self.made: list[torch.Tensor] = []
        """Memory of our own that the caller has now."""

    @abstractmethod
    def send(self) -> torch.Tensor:
        """Bring the tensor to the host; what the engine takes of it. Blocks for the device."""

    @abstractmethod
    def receive(self, result: Any) -> Event:
        """Take what the engine gave, and start to bring it to the device; when it will be there."""

    @abstractmethod
    def drop(self) -> None:
        """Let go of host memory, once the engine has."""

    def lead_caller(self, event: Event) -> None:
        """Have what the caller does next see the result."""
        self.staging.lead_caller(event, *self.made)


class DenseTransfer(Transfer):
    """A dense tensor of any layout, in place. With `words`, its bits as 32-bit integers."""

    def __init__(self, staging: Staging, tensor: torch.Tensor, *, words: bool = False) -> None:
        super().__init__(staging, tensor)
        self._words = words
        # The tensor, or a copy where it is not in one piece.
        self._memory = tensor

    @cached_property
    def _blocks(self) -> Blocks:
        return self.staging.down.run(self._look)

    def _look(self) -> Blocks:
        with torch.inference_mode(self.tensor.is_inference()):
            if self._words:
                memory, self._memory = as_words(self.tensor)
            else:
                memory = self._memory = plain(self.tensor)
        self.staging.up.hold(memory)
        return Blocks(memory)

    def _write(self, write: Callable[[], None]) -> Event:
        """Have `write` write into the blocks, and bring these to the tensor."""

        def both() -> None:
            with torch.inference_mode(self.tensor.is_inference()):
                write()
                if self._memory is not self.tensor:
                    self.tensor.data.copy_(self._memory)

        return self.staging.up.enqueue(both)


class PackedTransfer(DenseTransfer):
    """Blocks that are not zero, as a sparse tensor of rows; the union of all ranks' comes back.

    One that does not speak is zero, whatever it holds.
    """

    def __init__(
        self, staging: Staging, tensor: torch.Tensor, *, words: bool = False, speaks: bool = True
    ) -> None:
        super().__init__(staging, tensor, words=words)
        self._speaks = speaks
        # The stream adds rows in the order in which it adds dense tensors.
        self.arguments = {"algorithm": "stream", "result": "sparse"}
        self._sent: Rows | None = None

    def sample(self, count: int) -> torch.Tensor:
        """Marks of `count` blocks, int32, on the host. Blocks for the device."""
        blocks = self._blocks
        return self.staging.down.run(lambda: blocks.sample(count).cpu())

    def send(self) -> torch.Tensor:
        blocks, down = self._blocks, self.staging.down
        packed = down.run(blocks.pack) if self._speaks else None
        count = 0 if packed is None else len(packed.indices)
        self._sent = rows = Rows(down, count, blocks)
        if packed is not None:
            down.enqueue(partial(download, packed, blocks, rows)).synchronize()
            count += rows.end_with_tail()
        return torch.sparse_coo_tensor(
            rows.indices[None, :count],
            rows.values[:count],
            (len(blocks.rows) + rows.tails, BLOCK),
            is_coalesced=True,
            check_invariants=False,
        )

    def receive(self, result: torch.Tensor) -> Event:
        self.drop()
        up = self.staging.up
        if self._words and self._speaks:
            return up.record()  # What it sent is what comes back.
        indices, values = result.indices()[0], result.values()
        has_tail = len(indices) > 0 and int(indices[-1]) == len(self._blocks.rows)
        rows = Rows(up, len(indices) - has_tail, self._blocks)
        rows.fill(indices, values)
        there = self._write(partial(upload, rows, self._blocks))
        rows.give_back(there)
        return there

    def drop(self) -> None:
        if self._sent is not None:
            self._sent.give_back()
        self._sent = None


class WholeTransfer(DenseTransfer):
    """All elements, as they are."""

    _host: torch.Tensor | None = None

    def send(self) -> torch.Tensor:
        flat, down = self._blocks.flat, self.staging.down
        nbytes = flat.numel() * flat.element_size()
        self._host = down.pool.take(nbytes)
        self._elements = elements = self._host[:nbytes].view(flat.dtype)
        down.enqueue(partial(_move, elements, flat)).synchronize()
        return elements

    def receive(self, result: torch.Tensor) -> Event:
        there = self._write(partial(_move, self._blocks.flat, result))
        self._give_back(there)
        return there

    def drop(self) -> None:
        self._give_back(None)

    def _give_back(self, after: Event | None) -> None:
        if self._host is not None:
            self.staging.down.pool.give_back(self._host, after)
        self._host = None


class SparseTransfer(Transfer):
    """A sparse_coo tensor: new tensors come back, sparse or dense, or lists of them, or None.

    With `targets`, these come to hold what comes back, if anything does.
    """

    def __init__(
        self, staging: Staging, tensor: torch.Tensor, targets: Sequence[torch.Tensor] = ()
    ) -> None:
        super().__init__(staging, tensor)
        self._targets = targets
        self._sent: list[torch.Tensor] = []
        self.result: Any = None
        """What came back, on the device."""

    def send(self) -> torch.Tensor:
        down = self.staging.down
        # Positions that repeat are added up on the device.
        found = down.run(lambda: _parts(self.tensor.detach().coalesce()))
        self._sent = [_room(down, part) for part in found]
        on_host = [_shaped(memory, part) for memory, part in zip(self._sent, found, strict=True)]
        down.enqueue(partial(_move_all, on_host, found)).synchronize()
        return _joined(on_host, self.tensor)

    def receive(self, result: Any) -> Event:
        self.drop()
        if result is None:
            return self.staging.up.record()  # A reduce gives nothing to ranks other than its root.
        listed = result if isinstance(result, list) else [result]
        brought = [self._bring(each) for each in listed]
        self.result = brought if isinstance(result, list) else brought[0]
        for target, new in zip(self._targets, brought, strict=False):
            target.data = new
        return self.staging.up.record()

    def drop(self) -> None:
        for memory in self._sent:
            self.staging.down.pool.give_back(memory)
        self._sent = []

    def _bring(self, result: torch.Tensor) -> torch.Tensor:
        """A tensor like it on the device, once the stream has come so far."""
        up, found, device = self.staging.up, _parts(result), self.staging.device
        memory = [_room(up, part) for part in found]
        on_host = [_shaped(each, part) for each, part in zip(memory, found, strict=True)]
        _move_all(on_host, found)
        made = up.run(lambda: [torch.empty_like(part, device=device) for part in found])
        there = up.enqueue(partial(_move_all, made, on_host))
        for each in memory:
            up.pool.give_back(each, there)
        self.made += made
        return _joined(made, result)


def _joined(parts: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The tensor of these parts, which is sparse or dense as `like` is."""
    if like.layout is not torch.sparse_coo:
        return parts[0]
    indices, values = parts
    return torch.sparse_coo_tensor(
        indices, values, like.shape, is_coalesced=True, check_invariants=False
    )


def _move(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def _move_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        _move(target, source)


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Indices and values of a sparse_coo tensor; a dense one is its only part."""
    if tensor.layout is not torch.sparse_coo:
        return [tensor]
    return [tensor._indices(), plain(tensor._values().detach())]


def _room(way: Way, part: torch.Tensor) -> torch.Tensor:
    return way.pool.take(part.numel() * part.element_size())


def _shaped(memory: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The beginning of `memory` with the dtype and shape of `part`."""
    nbytes = part.numel() * part.element_size()
    return memory[:nbytes].view(part.dtype).view(part.shape)
