"""The parts of a comparison: the link's model, traces, candidates, predictions and rankings."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from support import RanksFailed, run_ranks

from sparsewire import init
from sparsewire.errors import OptimizeError
from sparsewire.tools.optimize.compare.candidate import Candidate, read_candidates
from sparsewire.tools.optimize.compare.comparison import agree, compare, load_problem
from sparsewire.tools.optimize.compare.descent import POINTS, Descent, Trace
from sparsewire.tools.optimize.compare.prediction import message_bits, predict, rounds_to
from sparsewire.tools.optimize.compare.registry import METHODS, Needs, method_options
from sparsewire.tools.optimize.compare.task import Comparison, Limits, LinkModel, parse_latency
from sparsewire.tools.optimize.compare.yardstick import Point, Yardstick, solution_of
from sparsewire.tools.optimize.methods.method import Sampled
from sparsewire.tools.optimize.methods.network import Simulated

TASK = Comparison("digits", workers=6, l2=0.02, split="label")


@pytest.fixture(scope="module")
def yardstick() -> Yardstick:
    problem = load_problem(TASK)
    return Yardstick(TASK, problem, solution_of(problem))


def test_link_counts_both_ways_and_latencies() -> None:
    link = LinkModel(up_bits_s=1e6, down_bits_s=1e7, latency_s=1e-3)
    assert link.seconds(rounds=10, bits=5e5, dimension=100) == pytest.approx(
        10 * 2e-3 + 0.5 + 10 * 6400 / 1e7
    )
    even = Comparison("digits", link="2.5gbit", latency="0.5ms")
    assert even.link_model() == LinkModel(2.5e9, 2.5e9, 0.5e-3)
    uneven = Comparison("digits", link="1gbit", downlink="10gbit", latency="1s")
    assert uneven.link_model() == LinkModel(1e9, 1e10, 1.0)


@pytest.mark.parametrize("text", ["", "5", "ms", "-1ms", "1 minute", "nan"])
def test_other_latencies_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        parse_latency(text)


@pytest.mark.parametrize("rounds", [0, 5, 2 * POINTS, 2 * POINTS + 1, 12_345])
def test_trace_stays_short_and_even_and_keeps_its_ends(rounds: int) -> None:
    trace = Trace()
    for number in range(rounds + 1):
        point = Point(number, number, number, number, 1.0, 1.0)
        if number == rounds:
            trace.end(point)
        elif trace.wants(number):
            trace.add(point)
    numbers = [point.rounds for point in trace.points]
    assert numbers[0] == 0
    assert numbers[-1] == rounds
    assert len(numbers) == len(set(numbers)) <= 2 * POINTS + 1
    assert len(numbers) > min(rounds, POINTS)
    assert len(set(np.diff(numbers[:-1]))) <= 1


def test_candidates_carry_their_own_compressor_or_the_shared_one() -> None:
    labels = [c.label for c in read_candidates(["gd", "diana", "ef21/top-k:3"], "rand-k:2")]
    assert labels == ["gd", "diana/rand-k:2", "ef21/top-k:3"]
    labels = [c.label for c in read_candidates(["diana", "ef21", "isega", "diana"], None)]
    assert labels == ["diana/rand-k:0.1", "ef21/top-k:0.1", "isega"]


def test_biased_operator_is_allowed_in_dcgd_with_a_step_of_ones_own(yardstick: Yardstick) -> None:
    candidate = Candidate("dcgd", "top-k:3")
    network = Simulated(6)
    with pytest.raises(OptimizeError, match="needs an unbiased operator"):
        candidate.build(yardstick.problem, network, TASK)
    task = Comparison("digits", workers=6, step=0.1)
    assert candidate.build(yardstick.problem, network, task).gamma == 0.1


def test_methods_start_at_the_measured_distance(yardstick: Yardstick) -> None:
    method = Candidate("gd").build(yardstick.problem, Simulated(6), TASK)
    assert yardstick.distance(method.x) == yardstick.first_distance
    assert yardstick.distance(yardstick.solution) == 0
    point = yardstick.point(method, yardstick.first_distance)
    assert point.suboptimality == pytest.approx(math.log(2) - yardstick.lowest)
    gradient = yardstick.problem.full_gradient(yardstick.solution)
    assert np.linalg.norm(gradient) < 1e-13


@pytest.mark.parametrize(
    ("workers", "model", "needs", "expected"),
    [
        (6, "logistic", Needs.NOTHING, True),
        (6, "logistic", Needs.WORKERS, False),
        (1, "logistic", Needs.WORKERS, True),
        (1, "logistic", Needs.COMPONENTS, False),
    ],
)
def test_what_vanishes_at_the_solution(
    workers: int, model: str, needs: Needs, expected: bool
) -> None:
    task = Comparison("breast_cancer", workers=workers, model=model, l2=0.02)
    problem = load_problem(task)
    assert Yardstick(task, problem, solution_of(problem)).vanishes(needs) is expected


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.999])
def test_rounds_are_the_least_that_the_rate_allows(rate: float) -> None:
    rounds = rounds_to(1e-6, rate)
    assert (1 - rate) ** rounds <= 1e-6 * (1 + 1e-6)
    assert (1 - rate) ** (rounds - 1) > 1e-6


def test_one_round_is_enough_for_rate_1() -> None:
    assert rounds_to(1e-6, 1.0) == 1


def test_message_bits_are_those_of_messages(yardstick: Yardstick) -> None:
    problem, task = yardstick.problem, TASK
    samples = problem.gradients(range(6), np.zeros(64))
    whole = 64 * 64

    def bits(name: str, compressor: str | None = None) -> float:
        method = Candidate(name, compressor).build(problem, Simulated(6), task)
        return message_bits(method, samples)

    assert bits("gd") == whole
    # A seed of 8 bytes, and 4 values.
    assert bits("diana", "rand-k:4") == 8 * (8 + 4 * 8)
    # As many blocks as workers: 6 of 11 elements, but one of 9. All workers draw one.
    assert 8 * (8 + 9 * 8) <= bits("isega") <= 8 * (8 + 11 * 8)
    # With probability 1 / (omega + 1) = 1/16, all of it.
    assert bits("marina", "rand-k:4") == pytest.approx(whole / 16 + 15 / 16 * 8 * (8 + 4 * 8))


def test_prediction_follows_from_rate_bits_and_link(yardstick: Yardstick) -> None:
    candidate = Candidate("diana", "rand-k:4")
    method = candidate.build(yardstick.problem, Simulated(6), TASK)
    prediction = predict(candidate, method, yardstick, 1e-6)
    assert prediction is not None
    assert method.rate == prediction.rate is not None
    assert prediction.most_rounds == rounds_to(1e-6, prediction.rate)
    assert prediction.rounds == yardstick.decay.rounds(1e-6, method.gamma, 10**6)
    assert prediction.rounds < prediction.most_rounds
    assert prediction.seconds == pytest.approx(
        prediction.rounds * (2e-4 + prediction.message_bits / 1e9 + 4096 / 1e9)
    )
    without = Candidate("ef21-sgdm", "top-k:3")
    method = without.build(yardstick.problem, Simulated(6), TASK)
    assert predict(without, method, yardstick, 1e-6) is None


def test_decay_foretells_gradient_descent_on_least_squares_to_the_round() -> None:
    task = Comparison("diabetes", workers=4, model="least-squares", normalize=False)
    problem = load_problem(task)
    yardstick = Yardstick(task, problem, solution_of(problem))
    method = Candidate("gd").build(problem, Simulated(4), task)
    assert method.rate is not None
    most = rounds_to(1e-6, method.rate)
    for _ in range(yardstick.decay.rounds(1e-6, method.gamma, most) - 1):
        method.step()
        share = yardstick.distance(method.x) / yardstick.first_distance
        assert share == pytest.approx(yardstick.decay.remaining(method.rounds, method.gamma))
    assert share > 1e-6
    method.step()
    assert yardstick.distance(method.x) <= 1e-6 * yardstick.first_distance
    assert method.rounds <= most


def test_decay_is_never_slower_than_its_slowest_direction(yardstick: Yardstick) -> None:
    step, least = 1 / yardstick.problem.L, yardstick.problem.mu
    for rounds in (1, 10, 1000):
        remaining = yardstick.decay.remaining(rounds, step)
        assert 0 < remaining <= (1 - step * least) ** (2 * rounds) * (1 + 1e-9)
    assert yardstick.decay.rounds(1e-6, step, most=7) == 7


def test_zeros_of_an_l1_term_count_as_reached() -> None:
    task = Comparison("breast_cancer", workers=4, l1=0.02, l2=0.05)
    problem = load_problem(task)
    solution = solution_of(problem)
    assert 0 < np.count_nonzero(solution) < problem.dimension
    yardstick = Yardstick(task, problem, solution)
    method = Candidate("gd").build(problem, Simulated(4), task)
    prediction = predict(Candidate("gd"), method, yardstick, 1e-6)
    assert prediction is not None
    while yardstick.distance(method.x) > 1e-6 * yardstick.first_distance:
        method.step()
    assert prediction.rounds == pytest.approx(method.rounds, rel=0.2)


def test_references_limit_what_steps_alone_would_reach() -> None:
    task = Comparison("breast_cancer", workers=2, l2=0.5)
    problem = load_problem(task)
    yardstick = Yardstick(task, problem, solution_of(problem))
    candidate = Candidate("vr-diana", "rand-k:0.5")
    method = candidate.build(problem, Simulated(2), task)
    # 284 rows per worker, each drawn once in so many rounds: more than the steps need.
    assert method.rate == pytest.approx(3 / (8 * 284))
    prediction = predict(candidate, method, yardstick, 1e-6)
    assert prediction is not None
    assert prediction.rounds == rounds_to(1e-3, method.rate)


def test_options_become_arguments_and_labels() -> None:
    texts = ["diana:momentum=0.9:alpha=0.05", "async-isgd:delay=3:step=0.5/rand-k:2", "diana"]
    momentum, late, plain = read_candidates([*texts, texts[0]], "rand-k:4")
    assert momentum.options == {"beta": 0.9, "alpha": 0.05}
    assert momentum.label == "diana:momentum=0.9:alpha=0.05/rand-k:4"
    assert late.options == {"delay": 3, "gamma": 0.5}
    assert late.label == "async-isgd:delay=3:step=0.5/rand-k:2"
    assert plain.options == {}


def test_options_reach_the_method(yardstick: Yardstick) -> None:
    task = Comparison("digits", workers=6, step=0.25, batch=2)

    def built(text: str) -> Any:
        (candidate,) = read_candidates([text], "rand-k:8")
        return candidate.build(yardstick.problem, Simulated(6), task)

    assert built("diana:momentum=0.5").beta == 0.5
    assert built("ef21-sgdm:eta=0.7:batch=5").eta == 0.7
    # A method's own option counts for more than the one for all.
    assert built("ef21-sgdm:batch=5").batch == 5
    assert built("ef21-sgdm").batch == 2
    assert built("async-isgd:delay=7").delay == 7
    assert built("marina:probability=0.5").probability == 0.5
    assert (built("gd:step=2").gamma, built("gd").gamma) == (2.0, 0.25)


def test_every_method_tells_its_options() -> None:
    for name, known in METHODS.items():
        options = method_options(known.kind)
        assert "step" in options, name
        assert options.keys().isdisjoint({"seed", "x0", "gamma", "beta"}), name
        assert ("batch" in options) >= issubclass(known.kind, Sampled), name


@pytest.mark.parametrize("model", ["logistic", "svm", "least-squares"])
def test_gradient_descent_gets_to_the_solution_at_the_rate_of_its_theory(model: str) -> None:
    task = Comparison(
        "breast_cancer", methods=("gd",), workers=4, model=model, l2=0.2, accuracy=1e-20
    )
    compared = compare(task, lambda *_: None)
    assert compared is not None
    (run,) = compared.runs
    assert run.ending == "reached"
    assert run.rate is not None
    assert run.last.rounds <= rounds_to(1e-20, run.rate)


@pytest.mark.parametrize(
    ("rounds", "epochs", "expected"),
    [
        (None, None, (100, 10)),
        (5000, None, (5000, math.inf)),
        (None, 70, (math.inf, 70)),
        (50, 7, (50, 7)),
    ],
)
def test_one_limit_is_not_cut_short_by_the_default_of_the_other(
    rounds: int | None, epochs: int | None, expected: tuple[float, float]
) -> None:
    task = Comparison("digits", rounds=rounds, epochs=epochs)
    limits = Limits.of(task, Limits(1e-9, 100, 10))
    assert (limits.rounds, limits.epochs) == expected
    assert limits.accuracy == 1e-9


def told(task: Comparison) -> tuple[list[Descent], set[str]] | None:
    """The runs, and whose progress was followed; None on ranks without a report."""
    labels: set[str] = set()
    report = compare(task, lambda name, *_: labels.add(name))
    return None if report is None else (report.runs, labels)


def test_real_ranks_do_what_simulated_workers_do() -> None:
    methods = ("diana/rand-k:5", "vr-diana", "isaga", "gd")
    task = Comparison("breast_cancer", methods=methods, workers=3, l2=0.05, rounds=60)
    ranks, *silent = run_ranks(3, told, task)
    simulated = told(task)
    assert silent == [None, None]
    assert ranks is not None
    assert simulated is not None
    assert ranks[1] == simulated[1] == {run.label for run in simulated[0]}
    for mine, theirs in zip(ranks[0], simulated[0], strict=True):
        # Each message goes to two other ranks, with framing.
        assert theirs.wire_bytes is None
        assert mine.wire_bytes is not None
        assert mine.wire_bytes > 2 * mine.last.bits / 8
        assert (mine.label, mine.ending) == (theirs.label, theirs.ending)
        for point, other in zip(mine.points, theirs.points, strict=True):
            # Constants and solution may differ in the last bits, by the threads of BLAS.
            assert asdict(point) == pytest.approx(asdict(other), rel=1e-9, abs=1e-14)


def constants_after_agreeing(first: float) -> list[float]:
    """Rank 1 starts with other constants and another solution."""
    with init() as comm:
        problem = load_problem(Comparison("iris", workers=2, l2=0.1), comm)
        if comm.rank == 1:
            problem.L, problem.L_i = 7.0, (8.0, 9.0)
            problem.mu, problem.mu_i = 3.0, (1.0, 2.0)
        solution = agree(comm, problem, np.full(4, first + comm.rank))
        constants = [problem.L, *problem.L_i, problem.L_max, problem.mu, *problem.mu_i]
        return [*constants, *solution]


def test_ranks_agree_on_constants_and_solution() -> None:
    first, second = run_ranks(2, constants_after_agreeing, 5.0)
    assert first == second
    assert first[-4:] == [5.0] * 4
    assert first[4:7] == [0.1] * 3


def with_seed_of_rank(data: str) -> None:
    with init() as comm:
        load_problem(Comparison(data, workers=2, seed=comm.rank), comm)


def test_ranks_with_different_options_are_refused() -> None:
    with pytest.raises(RanksFailed, match="different data or options"):
        run_ranks(2, with_seed_of_rank, "iris")
