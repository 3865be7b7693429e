"""Chooses a method and an operator for a link: ranks all by prediction, and runs the best few."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsewire.compress.errors import CompressError
from sparsewire.compress.registry import parse
from sparsewire.errors import OptimizeError
from sparsewire.meeting.launcher import is_launched
from sparsewire.optimize.compare.candidate import Candidate, read_candidates
from sparsewire.optimize.compare.comparison import run_candidate
from sparsewire.optimize.compare.data import load_problem
from sparsewire.optimize.compare.experiment import Experiment, solution_of
from sparsewire.optimize.compare.limits import Limits
from sparsewire.optimize.compare.prediction import Prediction, predict
from sparsewire.optimize.compare.ranking import Choice, Ranking
from sparsewire.optimize.compare.registry import METHODS, Takes, entry
from sparsewire.optimize.compare.report import Report
from sparsewire.optimize.compare.request import Request
from sparsewire.optimize.compare.run import Follow, Run
from sparsewire.optimize.compare.transport import Transport
from sparsewire.optimize.methods.method import Method

LIMITS = Limits(accuracy=1e-6, rounds=100_000, epochs=math.inf)
"""Times are predicted to this accuracy, and runs end here, unless the request says otherwise."""

_FAR_ENOUGH = 2
"""Theory bounds the rounds, so that a run of more than so many times as many has failed."""
_BASELINE = Candidate("gd")

_SPARSE = ("rand-k:0.01", "rand-k:0.05", "rand-k:0.1", "rand-k:0.25", "rand-k:0.5")
_QUANTISED = ("ternary", "ternary:inf", "dithering:4", "dithering:16", "natural")
_BIASED = ("top-k:0.01", "top-k:0.05", "top-k:0.1", "top-k:0.25")
_OPERATORS: dict[Takes, tuple[str | None, ...]] = {
    Takes.NONE: (None,),
    Takes.UNBIASED: (*_SPARSE, *_QUANTISED),
    Takes.ANY: (*_BIASED, *_SPARSE, *_QUANTISED),
    Takes.BLOCKS: (None, *_SPARSE),
}


def choose(request: Request, follow: Follow) -> Ranking:
    """Rank methods with their operators on simulated workers; run the first few, and plain GD.

    The request's methods limit the choice, and so does its compressor. Raises OptimizeError where
    nothing is left of it, and what `compare` raises for what was named and does not fit.
    """
    if is_launched():
        raise OptimizeError("--choose simulates the workers: run it without a launcher")
    if request.step is not None:
        raise OptimizeError("--choose takes the step sizes of the theory: leave out --step")
    problem = load_problem(request)
    if request.compressor:
        parse(request.compressor, problem.dimension, np.float64)
    experiment = Experiment(request, problem, solution_of(problem))
    limits = Limits.of(request, LIMITS)
    predictions, unknown = _predicted(experiment, limits.accuracy)
    choices = [
        Choice(prediction, _check(prediction, experiment, limits, follow) if is_run else None)
        for prediction, is_run in _selected(predictions, request.top)
    ]
    warnings = experiment.warnings([choice.predicted.candidate.method for choice in choices])
    if unknown:
        warnings.append(f"left out, as no theory says how fast they are: {', '.join(unknown)}")
    runs = [choice.run for choice in choices if choice.run is not None]
    report = Report.of(experiment, limits, warnings, runs, simulated=True)
    return Ranking(report, choices)


def _predicted(experiment: Experiment, accuracy: float) -> tuple[list[Prediction], list[str]]:
    """The predictions, the best first, and what was named that no theory predicts."""
    found, unknown = [], []
    for candidate in _considered(experiment):
        method = _built(candidate, experiment)
        prediction = None if method is None else predict(candidate, method, experiment, accuracy)
        if prediction is not None:
            found.append(prediction)
        elif experiment.request.methods:
            unknown.append(candidate.label)
    if not found:
        raise OptimizeError("no theory says how fast these methods are: allow others")
    return sorted(found, key=lambda prediction: prediction.seconds), unknown


def _selected(ranked: Sequence[Prediction], top: int) -> list[tuple[Prediction, bool]]:
    """Each prediction with whether it is to be run."""
    return [(p, place < top or p.candidate == _BASELINE) for place, p in enumerate(ranked)]


def _considered(experiment: Experiment) -> list[Candidate]:
    """What the request names, or all methods that reach the solution; with operators for each."""
    request = experiment.request
    methods = request.methods or [m for m, e in METHODS.items() if experiment.vanishes(e.needs)]
    return [candidate for text in methods for candidate in _versions(text, request.compressor)]


def _versions(text: str, compressor: str | None) -> list[Candidate]:
    named = read_candidates([text], compressor)
    if compressor or "/" in text:
        return named
    return [
        replace(candidate, compressor=operator)
        for candidate in named
        for operator in _OPERATORS[entry(candidate.method).takes]
    ]


def _built(candidate: Candidate, experiment: Experiment) -> Method | None:
    """The candidate's method. None where it does not fit, unless the user named the method."""
    request, problem = experiment.request, experiment.problem
    try:
        return candidate.build(problem, Transport(problem.workers).network(), request)
    except (OptimizeError, CompressError):
        if request.methods:
            raise
        return None


def _check(prediction: Prediction, experiment: Experiment, limits: Limits, follow: Follow) -> Run:
    candidate, problem = prediction.candidate, experiment.problem
    transport = Transport(problem.workers)
    method = candidate.build(problem, transport.network(), experiment.request)
    rounds = min(limits.rounds, _FAR_ENOUGH * prediction.most_rounds)
    own = replace(limits, rounds=rounds)
    return run_candidate(candidate, method, experiment, own, transport, follow)
