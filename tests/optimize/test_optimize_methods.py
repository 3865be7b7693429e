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
from sparsewire.optimize.train.block_descent import BlockDescent
from sparsewire.optimize.train.data import load, split
from sparsewire.optimize.train.losses import LOSSES
from sparsewire.optimize.train.problem import Problem
from sparsewire.optimize.train.report import Epoch, Item, Report
from sparsewire.optimize.train.request import Request
from sparsewire.optimize.train.run import run_rank
from sparsewire.optimize.train.sgd import Sgd

L2 = 0.1
METHODS = {"sgd": Sgd, "bcd": BlockDescent}
CONVERGING: dict[str, dict[str, Any]] = {
    "sgd": {"epochs": 40, "batch": 8},
    "bcd": {"epochs": 150, "block": 4},
}


def run_requests(*requests: Request) -> list[list[Item]]:
    """What each request told this rank: everything on rank 0, nothing on the others."""
    told: list[list[Item]] = [[] for _ in requests]
    for request, items in zip(requests, told, strict=True):
        run_rank(request, items.append)
    return told


def run(world_size: int, *requests: Request) -> list[list[Epoch]]:
    """The epochs of each request; all of them in the same processes, which start slowly."""
    first, *others = run_ranks(world_size, run_requests, *requests)
    assert others == [[[] for _ in requests]] * (world_size - 1)
    return [
        Report.from_items(request, items).epochs
        for request, items in zip(requests, first, strict=True)
    ]


def convergence_requests(data: Path) -> dict[tuple[str, str], Request]:
    return {
        (method, model): Request(str(data), model=model, method=method, l2=L2, **options)
        for method, options in CONVERGING.items()
        for model in LOSSES
    }


@pytest.fixture(scope="module", params=[1, 3])
def converged(data: Path, request: pytest.FixtureRequest) -> dict[tuple[str, str], list[Epoch]]:
    """The epochs of long runs on one rank and on three, by method and model."""
    requests = convergence_requests(data)
    return dict(zip(requests, run(request.param, *requests.values()), strict=True))


def prepare(comm: sparsewire.Communicator, request: Request) -> Any:
    """The request's method, and the training rows."""
    training, test = split(load(request), request.test_share, request.seed)
    problem = Problem(LOSSES[request.model], L2, *training.shape)
    return METHODS[request.method](comm, problem, training, test, request), training


def optimum(request: Request) -> float:
    """The lowest objective, as scikit-learn finds it."""
    training, _ = split(load(request), request.test_share, request.seed)
    rows = training.shape[0]
    # Signed rows all belong to the class +1; turned around, every second one belongs to -1.
    labels = np.where(np.arange(rows) % 2, 1.0, -1.0)
    features = training.toarray() * labels[:, np.newaxis]
    common: dict[str, Any] = {"C": 1 / (rows * L2), "fit_intercept": False, "tol": 1e-10}
    if request.model == "logistic":
        model = LogisticRegression(max_iter=10_000, **common)
    else:
        model = LinearSVC(max_iter=100_000, dual=False, **common)
    weights = model.fit(features, labels).coef_[0]
    problem = Problem(LOSSES[request.model], L2, *training.shape)
    losses = problem.loss.value(training @ weights)
    return problem.objective(float(losses.sum()), float(weights @ weights))


@pytest.mark.parametrize("model", LOSSES)
def test_block_descent_reaches_the_optimum_without_ever_rising(
    data: Path, model: str, converged: dict[tuple[str, str], list[Epoch]]
) -> None:
    objectives = [epoch.objective for epoch in converged["bcd", model]]
    assert (np.diff(objectives) <= 1e-12).all()
    best = optimum(convergence_requests(data)["bcd", model])
    assert objectives[-1] == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("model", LOSSES)
def test_sgd_comes_close_to_the_optimum(
    data: Path, model: str, converged: dict[tuple[str, str], list[Epoch]]
) -> None:
    last = converged["sgd", model][-1]
    best = optimum(convergence_requests(data)["sgd", model])
    assert best <= last.objective <= 1.01 * best
    assert last.train_accuracy > 0.85
    assert last.test_accuracy is not None
    assert last.test_accuracy > 0.8


def test_sgd_with_few_bits_still_learns(data: Path) -> None:
    request = Request(str(data), epochs=20, batch=16, l2=L2, precision="int8")
    (epochs,) = run(2, request)
    assert epochs[-1].objective <= 1.05 * optimum(request)


def bits_of_models(*requests: Request) -> list[tuple[bytes, bytes]]:
    bits = []
    for request in requests:
        with sparsewire.init() as comm:
            method, _ = prepare(comm, request)
            for _ in range(3):
                method.epoch()
            scores = method.scores()
        shared = method.weights.dense() if request.method == "sgd" else method.margins
        bits.append((shared.tobytes(), np.float64(scores.objective).tobytes()))
    return bits


def test_all_ranks_hold_the_same_bits_in_every_run(data: Path) -> None:
    requests = [Request(str(data), method=method) for method in METHODS]
    first, *others = run_ranks(3, bits_of_models, *requests, *requests)
    assert others == [first, first]
    sgd, bcd, sgd_again, bcd_again = first
    assert (sgd, bcd) == (sgd_again, bcd_again)


def margins_and_weights(request: Request) -> tuple[Any, Any, Any]:
    with sparsewire.init() as comm:
        method, training = prepare(comm, request)
        for _ in range(5):
            method.epoch()
        return training[:, method.columns] @ method.weights, method.margins, method.columns


def test_margins_of_block_descent_are_those_of_its_weights(data: Path) -> None:
    told = run_ranks(3, margins_and_weights, Request(str(data), method="bcd", block=3))
    parts, margins, columns = zip(*told, strict=True)
    np.testing.assert_allclose(sum(parts), margins[0], rtol=1e-10, atol=1e-12)
    assert sorted(np.concatenate(columns).tolist()) == list(range(40))


def step_lengths(request: Request) -> list[float]:
    lengths = []
    best_length = BlockDescent._best_length

    def spy(self: BlockDescent, *parts: Any) -> float:
        lengths.append(best_length(self, *parts))
        return lengths[-1]

    BlockDescent._best_length = spy  # type: ignore[method-assign]
    with sparsewire.init() as comm:
        method, _ = prepare(comm, request)
        for _ in range(10):
            method.epoch()
    return lengths


def test_steps_are_at_least_as_long_as_the_bound_by_ranks_allows(data: Path) -> None:
    told = run_ranks(3, step_lengths, Request(str(data), method="bcd", block=5))
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == 30
    assert min(told[0]) >= 1 / 3 - 1e-12
    assert max(told[0]) > 1 / 2


def test_more_ranks_than_rows_or_features(tmp_path: Path) -> None:
    file = write_file(tmp_path / "tiny", rows=3, features=2, density=1.0)
    requests = [Request(str(file), method=m, epochs=3, test_share=0.0) for m in METHODS]
    for epochs in run(4, *requests):
        assert epochs[-1].objective < epochs[0].objective
        assert epochs[-1].test_accuracy is None


def test_start_is_a_guess_and_costs_count_from_there(data: Path) -> None:
    requests = [Request(str(data), method=method, epochs=4) for method in METHODS]
    for epochs in run(2, *requests):
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
        run_requests(Request(str(file)))
    return "refused"


def test_ranks_with_different_data_are_refused(tmp_path: Path) -> None:
    assert run_ranks(2, differing, str(tmp_path)) == ["refused", "refused"]


def missing_on_rank_1(file: str) -> None:
    run_requests(Request(file if os.environ["RANK"] == "0" else file + ".missing"))


def test_error_of_one_rank_reaches_the_others(data: Path) -> None:
    with pytest.raises(RanksFailed, match=r"rank 0 raised(.|\n)*rank 1 failed: cannot read"):
        run_ranks(2, missing_on_rank_1, str(data))


def test_step_that_overshoots_is_refused(data: Path) -> None:
    with pytest.raises(RanksFailed, match="overshoots"):
        run_ranks(1, run_requests, Request(str(data), step=200.0, l2=L2))
