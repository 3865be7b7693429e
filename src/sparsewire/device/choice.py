"""The choice of a path for tensors of one kind, made every PERIOD calls from a sample of blocks.

All ranks add up their samples, and so see the same figures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sparsewire.device.packing import BLOCK
from sparsewire.device.path_cost import Path, Sample, Speeds, choose, predict

PERIOD = 32
"""Calls from one sample to the next."""
SAMPLED = 256
"""Blocks in a sample."""
SMALLEST = SAMPLED * BLOCK
"""Elements from which a sample pays; smaller tensors go dense."""

Mark = Callable[[int], torch.Tensor]
"""Returns marks of a number of blocks, int32: 1 for each block that is not zero."""
_KINDS_MAX = 1024
AddUp = Callable[[NDArray[np.int32]], NDArray[np.int32]]


class Kind(NamedTuple):
    """The properties of a tensor that are equal on all ranks anyway."""

    dtype: torch.dtype
    elements: int


@dataclass(frozen=True)
class Decision:
    """A path, and the figures behind it; `predicted_s` has the predicted seconds by path."""

    path: Path
    sample: Sample
    predicted_s: dict[str, float]

    @property
    def engine_path(self) -> Path:
        """The path, or the best path through the engine if the path avoids the engine."""
        through = (Path.PACKED, Path.DENSE)
        if self.path in through:
            return self.path
        return min(through, key=lambda path: self.predicted_s[path.value])


@dataclass
class _Record:
    calls: int = 0
    decision: Future[Decision] = field(default_factory=Future)


class Turn(NamedTuple):
    """One call's part in a decision; `samples` says whether this call takes the sample."""

    kind: Kind
    decision: Future[Decision]
    samples: bool


@contextmanager
def deciding(turn: Turn | None) -> Iterator[None]:
    """Pass errors, raised in here before the turn has decided, on to all that wait for the turn."""
    try:
        yield
    except BaseException as error:
        if turn is not None and turn.samples and not turn.decision.done():
            turn.decision.set_exception(error)
        raise


class Chooser:
    """Keeps the decisions of one group. Every rank takes its turns in the same order."""

    def __init__(self, ranks: int, speeds: Speeds) -> None:
        self._ranks = ranks
        self._speeds = speeds
        self._taking = threading.Lock()
        self._records: dict[Kind, _Record] = {}

    def take_turn(self, kind: Kind) -> Turn:
        """The next call's turn; called in the caller's thread, in the program's order."""
        with self._taking:
            if kind not in self._records and len(self._records) >= _KINDS_MAX:
                self._records.clear()
            record = self._records.setdefault(kind, _Record())
            samples = record.calls % PERIOD == 0
            record.calls += 1
            if samples:
                record.decision = Future()
            return Turn(kind, record.decision, samples)

    def begin_anew(self) -> None:
        """Forget all calls and decisions; on all ranks at one point of the program."""
        with self._taking:
            self._records.clear()

    def decide(self, turn: Turn, mark: Mark, add_up: AddUp) -> None:
        """Decide for a turn that samples; collective."""
        with deciding(turn):
            turn.decision.set_result(self._decision(turn.kind, self._sample(mark, add_up)))

    def _sample(self, mark: Mark, add_up: AddUp) -> Sample:
        marks = mark(SAMPLED).numpy()
        ranks_with = add_up(marks)
        own = float(ranks_with.sum()) / self._ranks / len(marks)
        return Sample(own, float((ranks_with > 0).sum()) / len(marks))

    def _decision(self, kind: Kind, sample: Sample) -> Decision:
        nbytes = kind.elements * kind.dtype.itemsize
        figures = (nbytes, self._ranks, sample, self._speeds)
        predicted = {path.value: predict(path, *figures) for path in Path}
        return Decision(choose(*figures), sample, predicted)

    def decisions(self) -> dict[str, Decision]:
        """The latest decision of each kind, by dtype and number of elements."""
        with self._taking:
            records = list(self._records.items())
        return {
            f"{str(kind.dtype).removeprefix('torch.')} x {kind.elements}": record.decision.result()
            for kind, record in records
            if record.decision.done() and record.decision.exception() is None
        }
