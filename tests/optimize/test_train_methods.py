"""The methods over real ranks: they reach the optimum, and all ranks agree to the last bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_data import write_file
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from support import RanksFailed, run_ranks

import sparsewire
from sparsewire.tools.optimize.problems.linear_model import LinearModel
from sparsewire.tools.optimize.task import MODELS, load
from sparsewire.tools.optimize.train.block_descent import BlockDescent
from sparsewire.tools.optimize.train.report import Epoch
from sparsewire.tools.optimize.train.run import METHODS, run_rank, split
from sparsewire.tools.optimize.train.training import Training

L2 = 0.1
CONVERGING: dict[str, dict[str, Any]] = {
    "sgd": {"epochs": 40, "batch": 8},
    "bcd": {"epochs": 150, "block": 4},
}


Told = list[tuple[str, dict[str, Any]]]


def run_tasks(*tasks: Training) -> list[Told]:
    """What each task told this rank: everything on rank 0, nothing on the others."""
    told: list[Told] = [[] for _ in tasks]
    for task, items in zip(tasks, told, strict=True):

        def tell(kind: str, /, items: Told = items, **fields: object) -> None:
            items.append((kind, fields))

        run_rank(task, tell)
    return told


def run(world_size: int, *tasks: Training) -> list[list[Epoch]]:
    """The epochs of each task; all of them in the same processes, which start slowly."""
    first, *others = run_ranks(world_size, run_tasks, *tasks)
    assert others == [[[] for _ in tasks]] * (world_size - 1)
    return [[Epoch(**fields) for kind, fields in items if kind == "epoch"] for items in first]


def convergence_tasks(data: Path) -> dict[tuple[str, str], Training]:
    return {
        (method, model): Training(str(data), model=model, method=method, l2=L2, **options)
        for method, options in CONVERGING.items()
        for model in Training.models
    }


@pytest.fixture(scope="module", params=[1, 3])
def converged(data: Path, request: pytest.FixtureRequest) -> dict[tuple[str, str], list[Epoch]]:
    """The epochs of long runs on one rank and on three, by method and model."""
    tasks = convergence_tasks(data)
    return dict(zip(tasks, run(request.param, *tasks.values()), strict=True))


def problem_of(task: Training) -> tuple[LinearModel, Any]:
    """Of all training rows, with the test rows."""
    examples = load(task).examples
    training, test = split(len(examples.labels), task.test_share, task.seed)
    return MODELS[task.model](examples, [training], l2=L2), examples.select(test)


def prepare(comm: sparsewire.Communicator, task: Training) -> Any:
    """The task's method, and the features of the training rows."""
    problem, test = problem_of(task)
    return METHODS[task.method](comm, problem, test, task), problem.examples.features


def optimum(task: Training) -> float:
    """The lowest objective, as scikit-learn finds it."""
    problem, _ = problem_of(task)
    (rows,), examples = problem.m, problem.examples
    common: dict[str, Any] = {"C": 1 / (rows * L2), "fit_intercept": False, "tol": 1e-10}
    if task.model == "logistic":
        model = LogisticRegression(max_iter=10_000, **common)
    else:
        model = LinearSVC(max_iter=100_000, dual=False, **common)
    return problem.loss(model.fit(examples.features.toarray(), examples.labels).coef_[0])


@pytest.mark.matrix
@pytest.mark.parametrize("model", Training.models)
def test_block_descent_reaches_the_optimum_without_ever_rising(
    data: Path, model: str, converged: dict[tuple[str, str], list[Epoch]]
) -> None:
    objectives = [epoch.objective for epoch in converged["bcd", model]]
    assert (np.diff(objectives) <= 1e-12).all()
    best = optimum(convergence_tasks(data)["bcd", model])
    assert objectives[-1] == pytest.approx(best, rel=1e-6)


@pytest.mark.matrix
@pytest.mark.parametrize("model", Training.models)
def test_sgd_comes_close_to_the_optimum(
    data: Path, model: str, converged: dict[tuple[str, str], list[Epoch]]
) -> None:
    last = converged["sgd", model][-1]
    best = optimum(convergence_tasks(data)["sgd", model])
    assert best <= last.objective <= 1.01 * best
    assert last.train_accuracy > 0.85
    assert last.test_accuracy is not None
    assert last.test_accuracy > 0.8


def test_sgd_with_few_bits_still_learns(data: Path) -> None:
    task = Training(str(data), epochs=20, batch=16, l2=L2, precision="int8")
    (epochs,) = run(2, task)
    assert epochs[-1].objective <= 1.05 * optimum(task)


def bits_of_models(*tasks: Training) -> list[tuple[bytes, bytes]]:
    bits = []
    for task in tasks:
        with sparsewire.init() as comm:
            method, _ = prepare(comm, task)
            for _ in range(3):
                method.epoch()
            scores = method.scores()
        shared = method.weights.dense() if task.method == "sgd" else method.margins
        bits.append((shared.tobytes(), np.float64(scores.objective).tobytes()))
    return bits


def test_all_ranks_hold_the_same_bits_in_every_run(data: Path) -> None:
    tasks = [Training(str(data), method=method) for method in METHODS]
    first, *others = run_ranks(3, bits_of_models, *tasks, *tasks)
    assert others == [first, first]
    sgd, bcd, sgd_again, bcd_again = first
    assert (sgd, bcd) == (sgd_again, bcd_again)


def margins_and_weights(task: Training) -> tuple[Any, Any, Any]:
    with sparsewire.init() as comm:
        method, training = prepare(comm, task)
        for _ in range(5):
            method.epoch()
        return training[:, method.columns] @ method.weights, method.margins, method.columns


def test_margins_of_block_descent_are_those_of_its_weights(data: Path) -> None:
    told = run_ranks(3, margins_and_weights, Training(str(data), method="bcd", block=3))
    parts, margins, columns = zip(*told, strict=True)
    np.testing.assert_allclose(sum(parts), margins[0], rtol=1e-10, atol=1e-12)
    assert sorted(np.concatenate(columns).tolist()) == list(range(40))


def step_lengths(task: Training) -> list[float]:
    lengths = []
    best_length = BlockDescent._best_length

    def spy(self: BlockDescent, *parts: Any) -> float:
        lengths.append(best_length(self, *parts))
        return lengths[-1]

    BlockDescent._best_length = spy  # type: ignore[method-assign]
    with sparsewire.init() as comm:
        method, _ = prepare(comm, task)
        for _ in range(10):
            method.epoch()
    return lengths


def test_steps_are_at_least_as_long_as_the_bound_by_ranks_allows(data: Path) -> None:
    told = run_ranks(3, step_lengths, Training(str(data), method="bcd", block=5))
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == 30
    assert min(told[0]) >= 1 / 3 - 1e-12
    assert max(told[0]) > 1 / 2


def test_more_ranks_than_rows_or_features(tmp_path: Path) -> None:
    file = write_file(tmp_path / "tiny", rows=3, features=2, density=1.0)
    tasks = [Training(str(file), method=m, epochs=3, test_share=0.0) for m in METHODS]
    for epochs in run(4, *tasks):
        assert epochs[-1].objective < epochs[0].objective
        assert epochs[-1].test_accuracy is None


def test_start_is_a_guess_and_costs_count_from_there(data: Path) -> None:
    tasks = [Training(str(data), method=method, epochs=4) for method in METHODS]
    for epochs in run(2, *tasks):
        assert epochs[0].objective == pytest.approx(np.log(2))
        assert epochs[0].train_accuracy == epochs[0].test_accuracy == 0.5
        for name in ("seconds", "communication_s", "bytes_sent"):
            values = [getattr(epoch, name) for epoch in epochs]
            assert values[0] == 0
            assert values == sorted(set(values)), name
        assert all(epoch.communication_s <= epoch.seconds for epoch in epochs)


def differing(directory: str) -> str:
    file = Path(directory) / os.environ["RANK"]
    write_file(file, rows=50 + int(os.environ["RANK"]))
    with pytest.raises(sparsewire.MismatchError, match="different data or options"):
        run_tasks(Training(str(file)))
    return "refused"


def test_ranks_with_different_data_are_refused(tmp_path: Path) -> None:
    assert run_ranks(2, differing, str(tmp_path)) == ["refused", "refused"]


def missing_on_rank_1(file: str) -> None:
    run_tasks(Training(file if os.environ["RANK"] == "0" else file + ".missing"))


def test_error_of_one_rank_reaches_the_others(data: Path) -> None:
    with pytest.raises(RanksFailed, match=r"rank 0 raised(.|\n)*rank 1 failed: cannot read"):
        run_ranks(2, missing_on_rank_1, str(data))


def test_step_that_overshoots_is_refused(data: Path) -> None:
    with pytest.raises(RanksFailed, match="overshoots"):
        run_ranks(1, run_tasks, Training(str(data), step=200.0, l2=L2))
