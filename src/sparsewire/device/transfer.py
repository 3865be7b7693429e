"""One tensor's way to the host, into a collective and back, in the form that suits its values.

Between `send` and `receive` the engine works on the tensor that `send` returns: a sparse tensor of
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
from sparsewire.device.staging import Staging
from sparsewire.device.words import as_words


def called(staging: Staging, tensor: torch.Tensor) -> Event:
    """Like `Staging.called`, for a tensor of any layout."""
    is_sparse = tensor.layout is torch.sparse_coo
    return staging.called(*([tensor._indices(), tensor._values()] if is_sparse else [tensor]))


class Transfer(ABC):
    """The way of one tensor. It may be made and used in any thread once `called` is done."""

    def __init__(self, staging: Staging, tensor: torch.Tensor) -> None:
        self.staging = staging
        self.tensor = tensor
        self.arguments: dict[str, Any] = {}
        """Arguments of an all_reduce of the sent tensor."""
        self.made: list[torch.Tensor] = []
        """Tensors that the transfer made, and that the caller now has."""
        self._sent = staging.down.loan()

    @abstractmethod
    def send(self) -> torch.Tensor:
        """Bring the tensor to the host, and return the engine's input. Blocks for the device."""

    @abstractmethod
    def receive(self, result: Any) -> Event:
        """Start to bring the engine's result to the device; the event tells when it is there."""

    def drop(self) -> None:
        """Let go of host memory; the engine must be done with it."""
        self._sent.end()

    def lead_caller(self, event: Event) -> None:
        """Have the caller's later work in its stream see the result."""
        self.staging.lead_caller(event, *self.made)


class DenseTransfer(Transfer):
    """A dense tensor of any layout, in place. With `words`, its bits as 32-bit integers."""

    def __init__(self, staging: Staging, tensor: torch.Tensor, *, words: bool = False) -> None:
        super().__init__(staging, tensor)
        self._words = words
        # The tensor, or a copy if it is not in one piece.
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
        """Have `write` write into the blocks, and copy these to the tensor if they are a copy."""

        def both() -> None:
            with torch.inference_mode(self.tensor.is_inference()):
                write()
                if self._memory is not self.tensor:
                    self.tensor.data.copy_(self._memory)

        return self.staging.up.enqueue(both)


class PackedTransfer(DenseTransfer):
    """Blocks that are not zero, as a sparse tensor of rows; the union of all ranks' comes back.

    Without `speaks`, the tensor counts as zero.
    """

    def __init__(
        self, staging: Staging, tensor: torch.Tensor, *, words: bool = False, speaks: bool = True
    ) -> None:
        super().__init__(staging, tensor, words=words)
        self._speaks = speaks
        # The stream adds rows in the order in which it adds dense tensors.
        self.arguments = {"algorithm": "stream", "result": "sparse"}

    def sample(self, count: int) -> torch.Tensor:
        """Marks of `count` blocks, int32, on the host. Blocks for the device."""
        blocks = self._blocks
        return self.staging.down.run(lambda: blocks.sample(count).cpu())

    def send(self) -> torch.Tensor:
        blocks, down = self._blocks, self.staging.down
        packed = down.run(blocks.pack) if self._speaks else None
        count = 0 if packed is None else len(packed.indices)
        with self._sent as loan:
            rows = Rows(loan, count, blocks)
            if packed is not None:
                down.enqueue(partial(download, packed, blocks, rows)).synchronize()
                count += rows.end_with_tail()
            loan.keep()
        if packed is None:
            # Nobody has waited for `_look`, which may still copy to the memory of the result.
            self.staging.up.follow(down.record())
        return torch.sparse_coo_tensor(
            rows.indices[None, :count],
            rows.values[:count],
            (len(blocks.rows) + rows.tails, BLOCK),
            device="cpu",
            is_coalesced=True,
            check_invariants=False,
        )

    def receive(self, result: torch.Tensor) -> Event:
        self.drop()
        up = self.staging.up
        if self._words and self._speaks:
            return up.record()  # The result is what was sent, and is there already.
        indices, values = result.indices()[0], result.values()
        has_tail = len(indices) > 0 and int(indices[-1]) == len(self._blocks.rows)
        with up.loan() as loan:
            rows = Rows(loan, len(indices) - has_tail, self._blocks)
            rows.fill(indices, values)
            return self._write(partial(upload, rows, self._blocks))


class WholeTransfer(DenseTransfer):
    """All elements, as they are."""

    def send(self) -> torch.Tensor:
        flat = self._blocks.flat
        with self._sent as loan:
            elements = loan.take_like(flat)
            self.staging.down.enqueue(partial(_move, elements, flat)).synchronize()
            loan.keep()
        return elements

    def receive(self, result: torch.Tensor) -> Event:
        try:
            return self._write(partial(_move, self._blocks.flat, result))
        finally:
            # The result is in the memory of the elements.
            self._sent.end(self.staging.up.end())


class SparseTransfer(Transfer):
    """A sparse_coo tensor. New tensors come back, sparse or dense, or lists of them, or None.

    With `targets`, these get the tensors that come back, if any.
    """

    def __init__(
        self, staging: Staging, tensor: torch.Tensor, targets: Sequence[torch.Tensor] = ()
    ) -> None:
        super().__init__(staging, tensor)
        self._targets = targets
        self.result: Any = None
        """The result on the device."""

    def send(self) -> torch.Tensor:
        down = self.staging.down
        # Positions that repeat are added up on the device.
        found = down.run(lambda: _parts(self.tensor.detach().coalesce()))
        with self._sent as loan:
            on_host = [loan.take_like(part) for part in found]
            down.enqueue(partial(_move_all, on_host, found)).synchronize()
            loan.keep()
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

    def _bring(self, result: torch.Tensor) -> torch.Tensor:
        """A copy of `result` on the device, complete once the stream has run it."""
        up, found, device = self.staging.up, _parts(result), self.staging.device
        with up.loan() as loan:
            on_host = [loan.take_like(part) for part in found]
            _move_all(on_host, found)
            made = up.run(lambda: [torch.empty_like(part, device=device) for part in found])
            up.enqueue(partial(_move_all, made, on_host))
        self.made += made
        return _joined(made, result)


def _joined(parts: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The tensor of these parts, sparse or dense like `like`."""
    if like.layout is not torch.sparse_coo:
        return parts[0]
    indices, values = parts
    return torch.sparse_coo_tensor(
        indices,
        values,
        like.shape,
        device=values.device,
        is_coalesced=True,
        check_invariants=False,
    )


def _move(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def _move_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        _move(target, source)


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Indices and values of a sparse_coo tensor; a dense tensor is its own only part."""
    if tensor.layout is not torch.sparse_coo:
        return [tensor]
    return [tensor._indices(), plain(tensor._values().detach())]
