"""A method with options and operator, as the user writes it: diana:momentum=0.9/rand-k:0.05."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from sparsewire.compress.composition import as_contraction
from sparsewire.compress.compressor import Compressor
from sparsewire.compress.registry import parse
from sparsewire.compress.seeded import SeededSparsifier
from sparsewire.errors import CompressError, OptimizeError
from sparsewire.tools.optimize.compare.registry import (
    METHODS,
    Setting,
    Takes,
    entry,
    read_options,
    write_options,
)
from sparsewire.tools.optimize.compare.task import Comparison
from sparsewire.tools.optimize.methods.method import Method, Sampled
from sparsewire.tools.optimize.methods.network import Network
from sparsewire.tools.optimize.problems.problem import Problem

_DEFAULTS = {Takes.UNBIASED: "rand-k:0.1", Takes.ANY: "top-k:0.1"}
"""Operators of methods that name none. Methods of blocks send 1/n of them instead."""


@dataclass(frozen=True)
class Candidate:
    """`compressor` is written as `sparsewire.compress.parse` reads it; None: the method's own."""

    method: str
    compressor: str | None = None
    options: dict[str, Setting] = field(default_factory=dict)
    """Keyword arguments of the method, which the task's step and batch give way to."""

    @property
    def label(self) -> str:
        method = self.method + write_options(self.options)
        return "/".join(filter(None, (method, self.compressor)))

    def build(self, problem: Problem, network: Network, task: Comparison) -> Method:
        """The method itself, at its start.

        Raises OptimizeError where method, compressor and problem do not fit, CompressError where
        there is no such compressor.
        """
        known = entry(self.method)
        if problem.l1 and not known.kind.proximal:
            proximal = [name for name, other in METHODS.items() if other.kind.proximal]
            raise OptimizeError(f"{self.method} takes no l1 term; {', '.join(proximal)} do")
        options: dict[str, Setting | None] = {"gamma": task.step, "seed": task.seed}
        if issubclass(known.kind, Sampled):
            options["batch"] = task.batch
        options |= self.options
        has_step = options["gamma"] is not None
        operator = self._operator(problem.dimension, known.takes, has_step)
        make: Callable[..., Method] = known.kind
        try:
            return make(problem, network, *filter(None, (operator,)), **options)
        except ValueError as error:
            raise OptimizeError(f"{self.label}: {error}") from None

    def _operator(self, dimension: int, takes: Takes, has_step: bool) -> Compressor | None:
        if self.compressor is None:
            return None
        operator = parse(self.compressor, dimension, np.float64)
        if takes is Takes.BLOCKS and not isinstance(operator, SeededSparsifier):
            raise OptimizeError(f"{self.method} takes no {self.compressor}, but {takes.value}")
        # With a step size of the user's, DCGD may use a biased operator.
        free = self.method == "dcgd" and has_step
        if takes is Takes.UNBIASED and operator.is_biased and not free:
            others = [name for name, known in METHODS.items() if known.takes is Takes.ANY]
            raise OptimizeError(
                f"{self.method} needs an unbiased operator, and {self.compressor} is biased; "
                f"{', '.join(others)} take it"
            )
        if takes is Takes.ANY:
            self._check_contraction(operator, has_step)
        return operator

    def _check_contraction(self, operator: Compressor, has_step: bool) -> None:
        try:
            contraction = as_contraction(operator).contraction
        except CompressError as error:
            raise OptimizeError(f"{self.label}: {error}") from None
        if not contraction > 0 and not has_step:
            raise OptimizeError(
                f"no contraction is known of {self.compressor}, and so no step size for "
                f"{self.method}: choose one with --step"
            )


def read_candidates(methods: Iterable[str], compressor: str | None) -> list[Candidate]:
    """Candidates from METHOD[:OPTION=VALUE...][/COMPRESSOR]; `compressor` is for those without.

    Raises OptimizeError for unknown methods and options, and for a compressor of what takes none.
    """
    candidates = [_read(text, compressor) for text in methods]
    # A second equal candidate would only cover the first in a plot.
    return list({candidate.label: candidate for candidate in candidates}.values())


def _read(text: str, shared: str | None) -> Candidate:
    front, slash, own = (part.strip() for part in text.partition("/"))
    method, *texts = (part.strip() for part in front.split(":"))
    known = entry(method)
    options = read_options(method, known.kind, texts)
    if known.takes is Takes.NONE:
        if slash:
            raise OptimizeError(f"{method} takes no operator; dcgd is gd that compresses")
        return Candidate(method, options=options)
    if slash and not own:
        raise OptimizeError(f"{text!r} names no compressor: leave out the slash, or add one")
    default = known.operator or _DEFAULTS.get(known.takes)
    return Candidate(method, own or shared or default, options)
