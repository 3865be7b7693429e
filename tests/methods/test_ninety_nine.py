"""The independent block methods step by step: what is sent, masks, tables, and saved states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from acceptance import LIBSVM, Check, cases
from data_sets import examples, logistic

from sparsewire.compress.draws import Draws
from sparsewire.compress.seeded import Bernoulli, RandK
from sparsewire.tools.optimize.methods.blocks import AsynchronousIsgd, Iasgd, Ibcd, Ibgd, Isgd
from sparsewire.tools.optimize.methods.diana import Diana, Isega
from sparsewire.tools.optimize.methods.gradient_descent import Gd
from sparsewire.tools.optimize.methods.isaga import DistributedIsaga, Isaga
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Simulated
from sparsewire.tools.optimize.problems.examples import by_index, by_label
from sparsewire.tools.optimize.problems.losses import Logistic
from sparsewire.tools.optimize.problems.problem import Floats

WORKERS = 6
SEED = 7
ROWS = 5
ALL = [Ibcd, Ibgd, Isega, Isgd, AsynchronousIsgd, Iasgd, Isaga, DistributedIsaga]


def small_problem() -> Logistic:
    return logistic("breast_cancer", WORKERS, 0.05, rows=ROWS)


def one_block(problem: Logistic) -> RandK:
    return RandK(problem.dimension, 1, problem.dimension // WORKERS, np.float64)


def masks_of_steps(sparsifier: RandK, steps: int, workers: int = WORKERS) -> np.ndarray:
    """What each worker must draw in each step: bool, shape (steps, workers, dimension)."""
    masks = np.zeros((steps, workers, sparsifier.dimension), bool)
    for i in range(workers):
        draws = Draws(SEED, i, "compressor")
        for step in range(steps):
            marks = sparsifier.marks_of(draws.key())
            masks[step, i, sparsifier.blocks.elements(marks.positions())] = True
    return masks


def path(method: Method, steps: int) -> Floats:
    points = []
    for _ in range(steps):
        method.step()
        points.append(method.x)
    return np.array(points)


def test_ibcd_moves_along_masked_gradients() -> None:
    problem = small_problem()
    sparsifier = one_block(problem)
    method = Ibcd(problem, Simulated(WORKERS), sparsifier, seed=SEED)
    x = np.zeros(problem.dimension)
    for masks, point in zip(masks_of_steps(sparsifier, 30), path(method, 30), strict=True):
        x = x - method.gamma / WORKERS * (masks * problem.gradients(range(WORKERS), x)).sum(axis=0)
        np.testing.assert_allclose(point, x, rtol=0, atol=1e-12)


ISEGA = cases(
    [("breast_cancer", WORKERS, ROWS, 0.05, 0.002)],
    [(name, 20, None, 2.5e-4, 0) for name in LIBSVM],
)


@pytest.mark.parametrize("case", ISEGA)
def test_isega_is_the_recursion_of_its_paper_and_diana_with_the_same_masks(
    case: tuple[str, int, int | None, float, float],
) -> None:
    name, workers, rows, l2, l1 = case
    problem = logistic(name, workers, l2, rows=rows, l1=l1)
    isega = Isega(problem, Simulated(workers), seed=SEED)
    tau = 1 / (isega.omega + 1)
    blocks = isega.compressors[0]
    diana = Diana(problem, Simulated(workers), blocks, gamma=isega.gamma, alpha=tau, seed=SEED)
    points, gamma, errors = path(isega, 200), isega.gamma, []
    x, h = np.zeros(problem.dimension), np.zeros((workers, problem.dimension))
    for masks, point in zip(masks_of_steps(blocks, 200, workers), points, strict=True):
        g = h + masks * (problem.gradients(range(workers), x) - h) / tau
        h = h + tau * (g - h)
        x = problem.prox(x - gamma * g.mean(axis=0), gamma)
        errors.append(np.abs(point - x).max())
    check = Check(10, name)
    check.at_most("ISEGA - recursion of the paper", max(errors), 1e-12)
    check.at_most("ISEGA - DIANA", np.abs(points - path(diana, 200)).max(), 1e-12)
    assert isega.bits == diana.bits


@pytest.mark.parametrize("kind", [Ibcd, Ibgd, Isega])
def test_all_blocks_make_it_gradient_descent(kind: type[Ibcd] | type[Isega]) -> None:
    problem = small_problem()
    whole = RandK(problem.dimension, problem.dimension, 1, np.float64)
    method = kind(problem, Simulated(WORKERS), whole, gamma=0.5)
    descent = Gd(problem, Simulated(WORKERS), gamma=0.5)
    np.testing.assert_allclose(path(method, 50), path(descent, 50), rtol=0, atol=1e-12)


def test_workers_draw_blocks_of_their_own() -> None:
    masks = masks_of_steps(one_block(small_problem()), 200)
    first, second = np.triu_indices(WORKERS, 1)
    agree = (masks[:, first] & masks[:, second]).any(axis=-1)
    # Two workers pick the same block once in WORKERS times.
    assert abs(agree.mean() - 1 / WORKERS) < 0.05


@pytest.mark.parametrize("kind", [Ibcd, Isega, Isgd, Iasgd, Isaga, DistributedIsaga])
def test_a_message_is_a_seed_and_the_values_of_its_blocks(kind: type[Method]) -> None:
    problem = small_problem()
    method = kind(problem, Simulated(WORKERS))
    path(method, 10)
    assert method.bits == 10 * (64 + 64 * problem.dimension / WORKERS)


def test_bernoulli_blocks_send_a_share_of_tau() -> None:
    problem = small_problem()
    method = Ibgd(problem, Simulated(WORKERS))
    path(method, 300)
    values = 300 * problem.dimension / WORKERS
    # Where a message has no values it has no seed, either, once in 237 times.
    assert abs(method.bits / 64 - 300 * (1 - (5 / 6) ** 30) - values) < 0.03 * values


def component_gradient(problem: Logistic, i: int, j: int, x: Floats) -> Floats:
    return problem.sample_gradients(i, np.array([j]), x)[0]


def saga_by_hand(problem: Logistic, gamma: float, drawn: Sequence[int]) -> Floats:
    """Points of SAGA that takes these components, one a step."""
    count = sum(problem.m)
    x, table, points = np.zeros(problem.dimension), np.zeros((count, problem.dimension)), []
    for j in drawn:
        gradient = component_gradient(problem, j // ROWS, j % ROWS, x)
        x = x - gamma * (gradient - table[j] + table.mean(axis=0))
        table[j] = gradient
        points.append(x)
    return np.array(points)


def alone() -> Logistic:
    """All data on one worker."""
    data = examples("breast_cancer")
    return Logistic(data, [part[:ROWS] for part in by_index(len(data.labels), 1)], l2=0.05)


@pytest.mark.parametrize("kind", [Isaga, DistributedIsaga])
def test_isaga_of_one_worker_and_all_blocks_is_saga(
    kind: type[Isaga] | type[DistributedIsaga],
) -> None:
    problem = alone()
    isaga = kind(problem, Simulated(1), RandK(30, 1, 30, np.float64), seed=SEED)
    draws = Draws(SEED, 0, "coin" if kind is Isaga else "samples").generator
    if kind is Isaga:
        drawn = [int(draws.choice(ROWS, 1, replace=False)[0]) for _ in range(100)]
    else:
        drawn = [int(draws.integers(ROWS, size=1)[0]) for _ in range(100)]
    by_hand = saga_by_hand(problem, isaga.gamma, drawn)
    np.testing.assert_allclose(path(isaga, 100), by_hand, rtol=0, atol=1e-12)


def test_isaga_renews_its_table_on_the_blocks_that_were_sent() -> None:
    problem = small_problem()
    sparsifier = one_block(problem)
    method = Isaga(problem, Simulated(WORKERS), sparsifier, seed=SEED)
    coin = Draws(SEED, 0, "coin").generator
    x, table = np.zeros(problem.dimension), np.zeros((WORKERS * ROWS, problem.dimension))
    for masks, point in zip(masks_of_steps(sparsifier, 200), path(method, 200), strict=True):
        js = coin.choice(len(table), WORKERS, replace=False)
        assert len(set(js)) == WORKERS
        fresh = np.array([component_gradient(problem, j // ROWS, j % ROWS, x) for j in js])
        direction = masks * (fresh - table[js] + table.mean(axis=0))
        x = x - method.gamma * direction.mean(axis=0)
        table[js] = np.where(masks, fresh, table[js])
        np.testing.assert_allclose(point, x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(method.a, table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(method.mean_a, table.mean(axis=0), rtol=0, atol=1e-12)


def test_distributed_isaga_keeps_the_mean_of_its_tables() -> None:
    data = examples("breast_cancer")
    # 569 rows among 6 workers: not all have equally many.
    problem = Logistic(data, by_label(data.labels, WORKERS), l2=0.05)
    method = DistributedIsaga(problem, Simulated(WORKERS), seed=SEED)
    path(method, 100)
    means = method.a.sum(axis=1) / np.array(problem.m)[:, None]
    np.testing.assert_allclose(method.mean_a, means, rtol=0, atol=1e-12)
    # A draw fills a block only: at most 100 blocks of 5 elements for each worker.
    filled = np.count_nonzero(method.a, axis=(1, 2))
    assert ((filled > 300) & (filled <= 500)).all()


def test_shared_data_must_be_in_equal_parts() -> None:
    data = examples("breast_cancer")
    problem = Logistic(data, by_label(data.labels, WORKERS), l2=0.05)
    with pytest.raises(ValueError, match="equal parts"):
        Isaga(problem, Simulated(WORKERS))


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind is not Isega])
def test_methods_without_a_proximal_step_refuse_l1(kind: type[Method]) -> None:
    with pytest.raises(ValueError, match="l1"):
        kind(logistic("breast_cancer", WORKERS, 0.05, rows=ROWS, l1=0.01), Simulated(WORKERS))


def test_acceleration_needs_strong_convexity() -> None:
    with pytest.raises(ValueError, match="strongly convex"):
        Iasgd(logistic("breast_cancer", WORKERS, 0.0, rows=ROWS), Simulated(WORKERS))


def test_without_delay_asynchronous_isgd_is_isgd() -> None:
    problem = small_problem()
    late = AsynchronousIsgd(problem, Simulated(WORKERS), delay=0, seed=SEED)
    isgd = Isgd(problem, Simulated(WORKERS), seed=SEED)
    assert late.gamma == isgd.gamma
    np.testing.assert_allclose(path(late, 50), path(isgd, 50), rtol=0, atol=1e-12)


def test_delayed_gradients_are_of_older_points() -> None:
    problem = small_problem()
    whole = RandK(problem.dimension, 1, problem.dimension, np.float64)
    method = AsynchronousIsgd(problem, Simulated(WORKERS), whole, delay=3, seed=SEED)
    samples = [Draws(SEED, i, "samples").generator for i in range(WORKERS)]
    points = [np.zeros(problem.dimension)]
    for point in path(method, 50):
        step = np.zeros(problem.dimension)
        for i, draws in enumerate(samples):
            j, age = int(draws.integers(ROWS, size=1)[0]), int(draws.integers(4))
            older = points[max(0, len(points) - 1 - age)]
            step += component_gradient(problem, i, j, older) / WORKERS
        points.append(points[-1] - method.gamma * step)
        np.testing.assert_allclose(point, points[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_a_restored_method_goes_on_with_the_same_bits(kind: type[Method]) -> None:
    problem = small_problem()
    method, other = (kind(problem, Simulated(WORKERS), seed=seed) for seed in (SEED, SEED + 1))
    path(method, 20)
    state = method.state()
    expected = path(method, 20)
    other.restore(state)
    np.testing.assert_array_equal(path(other, 20), expected)
    assert other.bits == method.bits
    assert other.gradients == method.gradients


class Meeting:
    """Threads that play one worker each, and wait for each other in every round."""

    def __init__(self) -> None:
        self.messages: list[bytes] = [b""] * WORKERS
        self.barrier = threading.Barrier(WORKERS, timeout=20)


class OneOfMany:
    """The network of one such thread."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.workers, self.local = WORKERS, [rank]

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        (self._meeting.messages[self.local[0]],) = messages
        self._meeting.barrier.wait()
        heard = list(self._meeting.messages)
        self._meeting.barrier.wait()
        return heard


def together(play: Callable[[int], Floats]) -> list[Floats]:
    """Run `play(rank)` in a thread for each worker; what it returned, by rank."""
    results: dict[int, Floats] = {}
    threads = [
        threading.Thread(target=lambda rank=rank: results.update({rank: play(rank)}), daemon=True)
        for rank in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(WORKERS)]


@pytest.mark.parametrize("kind", ALL)
def test_workers_apart_agree_with_workers_in_one_process(kind: type[Method]) -> None:
    problem, meeting = small_problem(), Meeting()
    expected = path(kind(problem, Simulated(WORKERS), seed=SEED), 20)
    for points in together(
        lambda rank: path(kind(problem, OneOfMany(meeting, rank), seed=SEED), 20)
    ):
        np.testing.assert_array_equal(points, expected)


def test_messages_may_be_empty() -> None:
    problem = small_problem()
    rare = Bernoulli(problem.dimension, 0.001, 1, np.float64)
    method = Ibcd(problem, Simulated(WORKERS), rare, seed=SEED)
    path(method, 5)
    assert method.bits < 5 * 64
