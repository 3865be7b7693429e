"""A task of `optimize`: what the options say, the ranks that share it, and its data."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from sparsewire import Communicator, MismatchError
from sparsewire.errors import OptimizeError
from sparsewire.meeting.connect import join
from sparsewire.tools.optimize.problems.examples import (
    Examples,
    positive_classes,
    read_examples,
    signs,
)
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.problems.losses import LeastSquares, Logistic, SquaredHinge

MODELS: dict[str, type[LinearModel]] = {
    "logistic": Logistic,
    "svm": SquaredHinge,
    "least-squares": LeastSquares,
}


@dataclass(frozen=True)
class Task:
    """The options of one job, alike on every rank. Raises OptimizeError for what makes no sense."""

    models: ClassVar[tuple[str, ...]] = tuple(MODELS)
    """The models that the task is for."""

    data: str
    model: str = "logistic"
    epochs: int | None = None
    """Passes over the data."""
    l2: float | None = None
    """Weight of the l2 term; None: 1 / rows."""
    seed: int = 0
    positive: str | None = None
    """The classes that count as +1, separated by commas."""
    normalize: bool = False
    """Whether every row is scaled to length 1."""
    batch: int | None = None
    """Rows per worker and step, where they are drawn."""
    step: float | None = None
    """Step size, or the first one; None: from the constants of the problem."""

    def __post_init__(self) -> None:
        self._require_one_of("model", self.models)
        for name in ("epochs", "batch"):
            self._require(name, lambda value: value >= 1, "at least 1")
        for name in ("seed", "l2"):
            self._require(name, lambda value: 0 <= value < math.inf, "0 or more, and finite")
        self._require("step", lambda value: 0 < value < math.inf, "positive")

    def _require(self, name: str, holds: Callable[[float], bool], what: str) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            option = name.replace("_", "-")
            raise OptimizeError(f"--{option} must be {what}, not {value:g}")

    def _require_one_of(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in known:
            raise OptimizeError(f"--{name} {value!r} is not known: use one of {', '.join(known)}")


@contextmanager
def joined() -> Iterator[Communicator]:
    """Join the ranks that a launcher started, or be the only one; an error on one ends all."""
    with join() as comm:
        try:
            yield comm
        except Exception as error:
            # The others may already wait for this rank.
            comm.abort(f"rank {comm.rank} failed: {error}")
            raise


def check_alike(comm: Communicator, task: Task, examples: Examples) -> None:
    """Raise MismatchError on all ranks where some have other options or data; collective.

    Ranks that minimise different functions would not notice, and agree on nonsense. `examples` are
    as they were read: what is computed from them may differ between processors.
    """
    # The same file may have another name on another host.
    options = json.dumps(asdict(replace(task, data="")), sort_keys=True)
    checksum = zlib.crc32(options.encode(), examples.fingerprint())
    highest, lowest = comm.all_reduce(np.array([checksum, -checksum]), op="max")
    if highest != -lowest:
        raise MismatchError(
            "ranks have different data or options: "
            "start all with the same options and copies of one file"
        )


@dataclass(frozen=True)
class Data:
    """Examples whose labels are -1 and +1 where the model takes classes."""

    name: str
    examples: Examples
    positive: list[float]
    """The classes that became +1; none where labels are as they were."""


def load(task: Task, comm: Communicator | None = None) -> Data:
    """Read the task's LIBSVM file, plain or packed (.gz, .bz2), or what scikit-learn bundles.

    Raises OptimizeError or DataError where there is none, or it does not fit the model. With a
    communicator it is collective, and raises MismatchError where ranks differ in data or options.
    """
    examples = read_examples(task.data)
    if comm is not None:
        check_alike(comm, task, examples)
    labels, positive = examples.labels, []
    if MODELS[task.model].takes_classes:
        classes = positive_classes(labels, task.positive)
        labels, positive = signs(labels, classes), classes.tolist()
    elif task.positive is not None:
        raise OptimizeError("--positive is for classes: least squares takes labels as they are")
    scaled = examples.with_unit_rows() if task.normalize else examples
    return Data(Path(task.data).name, Examples(scaled.features, labels), positive)
