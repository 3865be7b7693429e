"""The parts of a study: the link's model, traces, candidates, predictions and rankings."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from support import RanksFailed, run_ranks

from sparsewire import init
from sparsewire.methods.network import Simulated
from sparsewire.optimize.errors import OptimizeError
from sparsewire.study.agreement import agree, check_alike
from sparsewire.study.candidate import Candidate, read_candidates
from sparsewire.study.comparison import compare
from sparsewire.study.data import load_problem
from sparsewire.study.experiment import Experiment, solution_of
from sparsewire.study.link import Link, parse_latency, read_link
from sparsewire.study.prediction import message_bits, predict, rounds_to
from sparsewire.study.registry import Needs
from sparsewire.study.request import Request
from sparsewire.study.run import Run
from sparsewire.study.trace import POINTS, Point, Trace

REQUEST = Request("digits", workers=6, l2=0.02, split="label")


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    problem = load_problem(REQUEST)
    return Experiment(REQUEST, problem, solution_of(problem))


def test_link_counts_both_ways_and_latencies() -> None:
    link = Link(up_bits_s=1e6, down_bits_s=1e7, latency_s=1e-3)
    assert link.seconds(rounds=10, bits=5e5, dimension=100) == pytest.approx(
        10 * 2e-3 + 0.5 + 10 * 6400 / 1e7
    )
    assert read_link("2.5gbit", None, "0.5ms") == Link(2.5e9, 2.5e9, 0.5e-3)
    assert read_link("1gbit", "10gbit", "1s") == Link(1e9, 1e10, 1.0)


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


def test_biased_operator_is_allowed_in_dcgd_with_a_step_of_ones_own(experiment: Experiment) -> None:
    candidate = Candidate("dcgd", "top-k:3")
    network = Simulated(6)
    with pytest.raises(OptimizeError, match="needs an unbiased operator"):
        candidate.build(experiment.problem, network, REQUEST)
    request = Request("digits", workers=6, step=0.1)
    assert candidate.build(experiment.problem, network, request).gamma == 0.1


def test_methods_start_at_the_measured_distance(experiment: Experiment) -> None:
    method = Candidate("gd").build(experiment.problem, Simulated(6), REQUEST)
    assert experiment.distance(method.x) == experiment.first_distance
    assert experiment.distance(experiment.solution) == 0
    point = experiment.point(method, experiment.first_distance)
    assert point.suboptimality == pytest.approx(math.log(2) - experiment.lowest)
    gradient = experiment.problem.full_gradient(experiment.solution)
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
    request = Request("breast_cancer", workers=workers, model=model, l2=0.02)
    problem = load_problem(request)
    assert Experiment(request, problem, solution_of(problem)).vanishes(needs) is expected


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.999])
def test_rounds_are_the_least_that_the_rate_allows(rate: float) -> None:
    rounds = rounds_to(1e-6, rate)
    assert (1 - rate) ** rounds <= 1e-6 * (1 + 1e-6)
    assert (1 - rate) ** (rounds - 1) > 1e-6


def test_one_round_is_enough_for_rate_1() -> None:
    assert rounds_to(1e-6, 1.0) == 1


def test_message_bits_are_those_of_messages(experiment: Experiment) -> None:
    problem, request = experiment.problem, REQUEST
    samples = problem.gradients(range(6), np.zeros(64))
    whole = 64 * 64

    def bits(name: str, compressor: str | None = None) -> float:
        method = Candidate(name, compressor).build(problem, Simulated(6), request)
        return message_bits(method, samples)

    assert bits("gd") == whole
    # A seed of 8 bytes, and 4 values.
    assert bits("diana", "rand-k:4") == 8 * (8 + 4 * 8)
    # As many blocks as workers: 6 of 11 elements, but one of 9. All workers draw one.
    assert 8 * (8 + 9 * 8) <= bits("isega") <= 8 * (8 + 11 * 8)
    # With probability 1 / (omega + 1) = 1/16, all of it.
    assert bits("marina", "rand-k:4") == pytest.approx(whole / 16 + 15 / 16 * 8 * (8 + 4 * 8))


def test_prediction_follows_from_rate_bits_and_link(experiment: Experiment) -> None:
    candidate = Candidate("diana", "rand-k:4")
    method = candidate.build(experiment.problem, Simulated(6), REQUEST)
    prediction = predict(candidate, method, experiment, 1e-6)
    assert prediction is not None
    assert method.rate == prediction.rate is not None
    assert prediction.most_rounds == rounds_to(1e-6, prediction.rate)
    assert prediction.rounds == rounds_to(1e-3, prediction.rate)
    assert prediction.seconds == pytest.approx(
        prediction.rounds * (2e-4 + prediction.message_bits / 1e9 + 4096 / 1e9)
    )
    without = Candidate("ef21-sgdm", "top-k:3")
    method = without.build(experiment.problem, Simulated(6), REQUEST)
    assert predict(without, method, experiment, 1e-6) is None


def told(request: Request) -> tuple[list[Run], set[str]] | None:
    """The runs, and whose progress was followed; None on ranks without a report."""
    labels: set[str] = set()
    report = compare(request, lambda label, point: labels.add(label))
    return None if report is None else (report.runs, labels)


def test_real_ranks_do_what_simulated_workers_do() -> None:
    methods = ("diana/rand-k:5", "vr-diana", "isaga", "gd")
    request = Request("breast_cancer", methods, workers=3, l2=0.05, rounds=60)
    ranks, *silent = run_ranks(3, told, request)
    simulated = told(request)
    assert silent == [None, None]
    assert ranks is not None
    assert simulated is not None
    assert ranks[1] == simulated[1] == {run.label for run in simulated[0]}
    for mine, theirs in zip(ranks[0], simulated[0], strict=True):
        assert (mine.label, mine.ending) == (theirs.label, theirs.ending)
        for point, other in zip(mine.points, theirs.points, strict=True):
            # Constants and solution may differ in the last bits, by the threads of BLAS.
            assert asdict(point) == pytest.approx(asdict(other), rel=1e-9, abs=1e-14)


def constants_after_agreeing(first: float) -> list[float]:
    """Rank 1 starts with other constants and another solution."""
    with init() as comm:
        problem = load_problem(Request("iris", workers=2, l2=0.1))
        check_alike(comm, Request("iris", workers=2), problem)
        if comm.rank == 1:
            problem.L, problem.L_i, problem.mu = 7.0, (8.0, 9.0), 3.0
        solution = agree(comm, problem, np.full(4, first + comm.rank))
        return [problem.L, *problem.L_i, problem.L_max, problem.mu, *solution]


def test_ranks_agree_on_constants_and_solution() -> None:
    first, second = run_ranks(2, constants_after_agreeing, 5.0)
    assert first == second
    assert first[-4:] == [5.0] * 4
    assert first[4] == 0.1


def with_seed_of_rank(data: str) -> None:
    with init() as comm:
        request = Request(data, workers=2, seed=comm.rank)
        check_alike(comm, request, load_problem(Request(data, workers=2)))


def test_ranks_with_different_options_are_refused() -> None:
    with pytest.raises(RanksFailed, match="different data or options"):
        run_ranks(2, with_seed_of_rank, "iris")
