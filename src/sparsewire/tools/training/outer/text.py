"""The text that the GPT learns: numbered characters, batches for replicas, what is held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.errors import ExperimentError
from sparsewire.tools.training.corpus import texts_of
from sparsewire.tools.training.outer.order import Setting
from sparsewire.tools.training.workloads.workload import Batch

HELD_OUT = 0.1
"""The share of the text at its end that is not trained on."""
WINDOWS = 256
"""Windows of it that a held-out loss is the mean of."""
LONGEST = 2**21
"""More characters are left out: no run here reads as many."""


def save_characters(path: Path | None, file: Path) -> str:
    """Number the characters of a file, a folder or Python's library into `file`; says what it was.

    Characters are bytes of UTF-8. Raises ExperimentError where there is no text, or too little.
    """
    read = np.frombuffer("\n".join(texts_of(path)).encode()[:LONGEST], np.uint8)
    if len(read) < 2 * WINDOWS / HELD_OUT:
        raise ExperimentError(f"{path} has {len(read)} characters: give a longer text")
    different, numbers = np.unique(read, return_inverse=True)
    np.save(file, numbers.astype(np.uint8))
    source = "Python's standard library" if path is None else path.name
    return f"{source}: {len(numbers):,} characters, {len(different)} different ones"


@dataclass(frozen=True)
class Text:
    """Numbers of characters, (characters,), cut into windows of `context`."""

    numbers: NDArray[np.integer[Any]]
    context: int

    @classmethod
    def of(cls, setting: Setting) -> Text:
        """That of a run."""
        return cls(np.load(setting.characters), setting.shape.context)

    @property
    def vocabulary(self) -> int:
        return int(self.numbers.max()) + 1

    @property
    def _split(self) -> int:
        return int(len(self.numbers) * (1 - HELD_OUT))

    def draw(self, batch: int, generator: np.random.Generator) -> Batch:
        """Windows of the part to learn, and what follows each character: int64 (batch, context)."""
        return self._windows(generator.integers(self._split - self.context - 1, size=batch))

    def held_out(self, batch: int, rank: int, ranks: int) -> Iterator[Batch]:
        """Every rank's part of the windows to test with, in batches."""
        last = len(self.numbers) - self.context - 1
        starts = np.linspace(self._split, last, WINDOWS).astype(np.int64)[rank::ranks]
        for begin in range(0, len(starts), batch):
            yield self._windows(starts[begin : begin + batch])

    def _windows(self, starts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        places = starts[:, None] + np.arange(self.context + 1)
        windows = torch.from_numpy(self.numbers[places].astype(np.int64))
        return windows[:, :-1], windows[:, 1:]
