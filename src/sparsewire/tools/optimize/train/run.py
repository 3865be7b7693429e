"""Runs one rank of a training, from the file to the last epoch, or starts several ranks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sparsewire import Communicator
from sparsewire.errors import Error, OptimizeError
from sparsewire.tools.experiment.crew import Tell, claim_stdout, run_on_loopback
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.experiment.report import Report
from sparsewire.tools.optimize.problems.examples import Examples
from sparsewire.tools.optimize.problems.problem import Integers
from sparsewire.tools.optimize.task import MODELS, joined, load
from sparsewire.tools.optimize.train.block_descent import BlockDescent
from sparsewire.tools.optimize.train.report import Epoch, Setting, training_report
from sparsewire.tools.optimize.train.scores import Stopwatch
from sparsewire.tools.optimize.train.sgd import Sgd
from sparsewire.tools.optimize.train.training import Training

METHODS: dict[str, type[Sgd | BlockDescent]] = {"sgd": Sgd, "bcd": BlockDescent}
_MOST_RANKS = 64


def train(task: Training, workers: int | None, move: Move) -> Report | None:
    """Train on so many ranks on loopback, or as this rank, whose launcher has started others.

    The report is for rank 0 alone; the others get None. Raises what `run_rank` raises, WorkerFailed
    where a rank fails that was started here, OptimizeError for too many of these.
    """
    if workers is not None and workers > _MOST_RANKS:
        raise OptimizeError(f"--workers {workers} would start too many: {_MOST_RANKS} at most")
    settings: list[Setting] = []
    epochs: list[Epoch] = []

    def tell(kind: str, /, **fields: Any) -> None:
        if kind == "setting":
            settings.append(Setting(**fields))
        else:
            epochs.append(Epoch(**fields))
            (setting,), last = settings, epochs[-1]
            state = f"{last.epoch}/{task.epochs}, objective {last.objective:.6f}"
            move(f"{setting.data}, ranks: {setting.ranks}", last.epoch, task.epochs, state)

    if workers is None:
        run_rank(task, tell)
    else:
        options = json.dumps(asdict(task))
        run_on_loopback(
            __name__, options, ranks=workers, on_event=lambda e: tell(e.pop("event"), **e)
        )
    return training_report(task, settings[0], epochs) if settings else None


def run_rank(task: Training, tell: Tell) -> None:
    """Join the other ranks that a launcher started, or be the only one, and train.

    Rank 0 tells the setting, and then each epoch as it ends. Raises OptimizeError for unusable
    data, MismatchError where ranks have different data or options, and what the collectives raise.
    An error on one rank ends all.
    """
    with joined() as comm:
        _train(comm, task, tell if comm.rank == 0 else lambda *_, **__: None)


def _train(comm: Communicator, task: Training, tell: Tell) -> None:
    data = load(task, comm)
    examples = Examples(csr_array(data.examples.features), data.examples.labels)
    training, test = split(len(examples.labels), task.test_share, task.seed)
    l2 = 1 / len(training) if task.l2 is None else task.l2
    problem = MODELS[task.model](examples, [training], l2=l2)
    method = METHODS[task.method](comm, problem, examples.select(test), task)
    tell(
        "setting",
        data=data.name,
        model=problem.name,
        method=task.method,
        ranks=comm.world_size,
        rows=len(training),
        test_rows=len(test),
        features=problem.dimension,
        row_nonzeros=problem.examples.features.nnz / len(training),
        positive=data.positive,
        l2=l2,
        step_size=method.step_size,
        steps=method.steps,
        dense_bytes=method.dense_bytes,
    )
    _run_epochs(comm, method, task.epochs, tell)


def split(rows: int, test_share: float, seed: int) -> tuple[Integers, Integers]:
    """Shuffle the rows and hold out a share of them: the numbers of (training rows, test rows).

    It depends on the seed, not on the number of ranks.
    """
    order = np.random.default_rng(seed).permutation(rows)
    held_out = round(rows * test_share)
    if held_out == rows:
        raise OptimizeError(f"--test-share {test_share:g} leaves nothing to train on")
    return order[held_out:], order[:held_out]


def _run_epochs(comm: Communicator, method: Sgd | BlockDescent, epochs: int, tell: Tell) -> None:
    clock, sent = Stopwatch(), 0
    for number in range(epochs + 1):
        if number > 0:
            comm.barrier()
            sent_before = comm.stats()["bytes_sent"]
            with clock:
                method.epoch()
            sent += comm.stats()["bytes_sent"] - sent_before
        costs = np.array([clock.seconds, method.communication.seconds, sent], np.float64)
        names = ("seconds", "communication_s", "bytes_sent")
        means = dict(zip(names, comm.all_reduce(costs, op="avg").tolist(), strict=True))
        tell("epoch", epoch=number, **asdict(method.scores()), **means)


def main() -> None:
    """Run the task given as the only argument; rank 0 tells how it goes."""
    try:
        run_rank(Training(**json.loads(sys.argv[1])), claim_stdout())
    except (Error, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
