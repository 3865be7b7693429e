"""Chooses a method and an operator for a link: ranks all by prediction, and runs the best few."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import numpy as np

from sparsewire.compress.registry import parse
from sparsewire.errors import CompressError, OptimizeError
from sparsewire.launcher import is_launched
from sparsewire.tools.experiment.progress import Move
from sparsewire.tools.optimize.compare.candidate import Candidate, read_candidates
from sparsewire.tools.optimize.compare.comparison import load_problem
from sparsewire.tools.optimize.compare.descent import Descent, descend
from sparsewire.tools.optimize.compare.prediction import Prediction, predict
from sparsewire.tools.optimize.compare.ranking import Ranked, Ranking
from sparsewire.tools.optimize.compare.registry import METHODS, Takes, entry
from sparsewire.tools.optimize.compare.report import Setting
from sparsewire.tools.optimize.compare.task import Comparison, Limits
from sparsewire.tools.optimize.compare.yardstick import Yardstick, solution_of
from sparsewire.tools.optimize.methods.method import Method
from sparsewire.tools.optimize.methods.network import Simulated

LIMITS = Limits(accuracy=1e-6, rounds=100_000, epochs=math.inf)
"""Times are predicted to this accuracy, and runs end here, unless the task says otherwise."""

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


def choose(task: Comparison, move: Move) -> Ranking:
    """Rank methods with their operators on simulated workers; run the first few, and plain GD.

    The task's methods limit the choice, and so does its compressor. Raises OptimizeError where
    nothing is left of it, and what `compare` raises for what was named and does not fit.
    """
    if is_launched(os.environ):
        raise OptimizeError("--choose simulates the workers: run it without a launcher")
    if task.step is not None:
        raise OptimizeError("--choose takes the step sizes of the theory: leave out --step")
    problem = load_problem(task)
    if task.compressor:
        parse(task.compressor, problem.dimension, np.float64)
    yardstick = Yardstick(task, problem, solution_of(problem))
    limits = Limits.of(task, LIMITS)
    predictions, unknown = _predicted(yardstick, limits.accuracy)
    ranked = [
        Ranked(place, one, _checked(place, one, yardstick, limits, move))
        for place, one in enumerate(predictions, 1)
    ]
    warnings = yardstick.warnings([one.predicted.candidate.method for one in ranked])
    if unknown:
        warnings.append(f"left out, as no theory says how fast they are: {', '.join(unknown)}")
    runs = [one.run for one in ranked if one.run is not None]
    setting = Setting.of(yardstick, limits, simulated=True)
    return Ranking(task, setting, warnings, runs, ranked)


def _predicted(yardstick: Yardstick, accuracy: float) -> tuple[list[Prediction], list[str]]:
    """The predictions, the best first, and what was named that no theory predicts."""
    found, unknown = [], []
    for candidate in _considered(yardstick):
        method = _built(candidate, yardstick)
        prediction = None if method is None else predict(candidate, method, yardstick, accuracy)
        if prediction is not None:
            found.append(prediction)
        elif yardstick.task.methods:
            unknown.append(candidate.label)
    if not found:
        raise OptimizeError("no theory says how fast these methods are: allow others")
    return sorted(found, key=lambda prediction: prediction.seconds), unknown


def _considered(yardstick: Yardstick) -> list[Candidate]:
    """The task's methods, or all that reach the solution; with operators for each."""
    task = yardstick.task
    methods = task.methods or [m for m, e in METHODS.items() if yardstick.vanishes(e.needs)]
    return [candidate for text in methods for candidate in _versions(text, task.compressor)]


def _versions(text: str, compressor: str | None) -> list[Candidate]:
    named = read_candidates([text], compressor)
    if compressor or "/" in text:
        return named
    return [
        replace(candidate, compressor=operator)
        for candidate in named
        for operator in dict.fromkeys(
            (*_OPERATORS[entry(candidate.method).takes], candidate.compressor)
        )
    ]


def _built(candidate: Candidate, yardstick: Yardstick) -> Method | None:
    """The candidate's method. None where it does not fit, unless it is what the user named."""
    task, problem = yardstick.task, yardstick.problem
    try:
        return candidate.build(problem, Simulated(problem.workers), task)
    except (OptimizeError, CompressError):
        if candidate in read_candidates(task.methods, task.compressor):
            raise
        return None


def _checked(
    place: int, prediction: Prediction, yardstick: Yardstick, limits: Limits, move: Move
) -> Descent | None:
    """The run of one of the best few, or of the baseline; None for the others."""
    candidate, problem, task = prediction.candidate, yardstick.problem, yardstick.task
    if place > task.top and candidate != _BASELINE:
        return None
    method = candidate.build(problem, Simulated(problem.workers), task)
    rounds = min(limits.rounds, _FAR_ENOUGH * prediction.most_rounds)
    return descend(candidate, method, yardstick, replace(limits, rounds=rounds), None, move)
