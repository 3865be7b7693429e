"""Batches of samples on their way from readers to trainers, as bytes in a store of torch's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from sparsewire.errors import ProtocolError
from sparsewire.tools.training.reinforcement.reversal import COUNT, LENGTH, VOCABULARY

_NUMBER = np.dtype("<i8")
_CHANCE = np.dtype("<f4")
_ROW_BYTES = LENGTH + COUNT * _CHANCE.itemsize


class Batch(NamedTuple):
    """What a reader has sampled with one version of the weights.

    `tokens` are int64 [n, LENGTH], `log_chances` float32 [n, COUNT], of the answers' tokens.
    """

    version: int
    tokens: Tensor
    log_chances: Tensor

    def encode(self) -> bytes:
        """The batch as bytes."""
        parts = (
            np.array(self.version, _NUMBER),
            self.tokens.numpy().astype(np.uint8),
            self.log_chances.numpy().astype(_CHANCE),
        )
        return b"".join(part.tobytes() for part in parts)

    @classmethod
    def decode(cls, data: bytes, size: int) -> Batch:
        """The batch of `size` rows in these bytes; raises ProtocolError for anything else."""
        if len(data) != _NUMBER.itemsize + size * _ROW_BYTES:
            raise ProtocolError(f"{len(data)} bytes are no batch of {size} samples")
        split = _NUMBER.itemsize + size * LENGTH
        tokens = np.frombuffer(data[_NUMBER.itemsize : split], np.uint8).reshape(size, LENGTH)
        if tokens.max(initial=0) >= VOCABULARY:
            raise ProtocolError(f"a batch has token {tokens.max()}, of {VOCABULARY}")
        chances = np.frombuffer(data[split:], _CHANCE).reshape(size, COUNT)
        return cls(
            int(np.frombuffer(data, _NUMBER, 1)[0]),
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(chances.astype(np.float32)),
        )


def send(store: Store, reader: int, number: int, batch: Batch) -> None:
    """Leave a batch where its trainer finds it."""
    # Stores take bytes, whatever their stubs say.
    value: Any = batch.encode()
    store.set(_key(reader, number), value)


def receive(store: Store, reader: int, number: int, size: int) -> Batch:
    """Wait for a batch, as long as the store does, and take it out of the store."""
    key = _key(reader, number)
    batch = Batch.decode(store.get(key), size)
    store.delete_key(key)
    return batch


def _key(reader: int, number: int) -> str:
    return f"batch/{reader}/{number}"
