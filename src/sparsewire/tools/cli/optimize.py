"""`sparsewire optimize`: trains linear models over the sparse collectives, or compares methods."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparsewire.errors import OptimizeError
from sparsewire.tools.cli import optimize_options as options
from sparsewire.tools.cli.command import InSections, OfSection
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.experiment.extras import require

if TYPE_CHECKING:
    from sparsewire.tools.experiment.progress import Move
    from sparsewire.tools.experiment.report import Report

    Found = tuple[Report, list[str]] | None
    """The report to present, and warnings before it; None if other ranks do that."""

AnyTask = TypeVar("AnyTask")

_TRAINING = ("sgd", "bcd")


def _show_methods(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        with exit_on_error():
            _require_extra()
            from sparsewire.tools.experiment.report import report_console
            from sparsewire.tools.optimize.compare.registry import methods

            report_console().print(methods())
        context.exit()


@click.command(cls=InSections)
@click.argument("data", metavar="DATA")
@options.common
@options.training
@options.comparison
@click.option(
    "--methods",
    cls=OfSection,
    section=options.COMPARISON,
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_methods,
    help="List the methods to compare, with their operators and options, and exit.",
)
def optimize(**given: Any) -> None:
    """Train a linear model on all ranks together, or compare methods that send compressed messages.

    DATA is a LIBSVM file, also .gz, .bz2; or breast_cancer, diabetes, digits, iris, wine.

    sgd divides the rows among the ranks and sums sparse gradients; bcd divides the
    features and gathers sparse changes of the margins. Start the ranks with torchrun, mpirun or
    srun, or here with --workers.

    Example: sparsewire optimize a9a --workers 4 --epochs 10 --plot a9a.png

    Other methods (gd, dcgd, diana, ef21, isega, local-sgd, ...) are compared: how close they come
    to the solution, for how many passes over the data, bits, and seconds on a link. The workers
    are simulated, or the ranks of a launcher.

    Example: sparsewire optimize digits --method diana,dcgd,gd --compressor rand-k:0.05 --split
    label --link 100mbit --plot digits.png
    """
    with exit_on_error():
        _require_extra()
        # The defaults of omitted options depend on the job.
        _dispatch({name: value for name, value in given.items() if value not in (None, ())})


def _require_extra() -> None:
    for package in ("sklearn", "scipy"):
        require(package, extra="optimize")


def _dispatch(given: dict[str, Any]) -> None:
    from sparsewire.launcher import is_launched
    from sparsewire.tools.experiment.progress import bars
    from sparsewire.tools.experiment.report import ResultFiles

    if "workers" in given and is_launched(os.environ):
        raise OptimizeError("a launcher has started the ranks already: leave out --workers")
    methods = _methods(given.pop("method", ()))
    files = ResultFiles(given.pop("json_file", None), given.pop("plot", None))
    if files.plot is not None:
        require("matplotlib", extra="plots")
    if not is_launched(os.environ):
        # In a job of ranks, rank 0 alone writes, and others may have no such folder.
        files.checked()
    job = _job(methods, given.pop("choose", False))
    with bars() as move:
        found = job(methods, given, move)
    if found is not None:
        # Rank 0 alone is told.
        report, warnings = found
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        report.present(files)


def _job(methods: list[str], is_choice: bool) -> Callable[[list[str], dict[str, Any], Move], Found]:
    """The job for these methods; raises OptimizeError if they do not go together."""
    training = [name for name in methods if re.split("[:/]", name)[0] in _TRAINING]
    if training and training[0] not in _TRAINING:
        raise OptimizeError(f"{training[0]}: sgd and bcd take --batch, --step, --block and others")
    if training and (is_choice or len(methods) > 1):
        raise OptimizeError(f"{training[0]} trains, alone, and takes no part in comparisons")
    if is_choice:
        return partial(_compare, is_choice=True)
    return _compare if methods and not training else _train


def _methods(texts: Sequence[str]) -> list[str]:
    """The methods that are named, with commas between or one by one."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if texts and not names:
        raise OptimizeError("--method names none: leave it out, or write for example diana,gd")
    return names


def _task(kind: Callable[..., AnyTask], job: str, given: dict[str, Any]) -> AnyTask:
    """The task with these options; those that it does not know belong to other jobs."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise OptimizeError(f"--{name.replace('_', '-')} is no option of {job}")
    return kind(**given)


def _train(methods: list[str], given: dict[str, Any], move: Move) -> Found:
    from sparsewire.tools.optimize.train.run import train
    from sparsewire.tools.optimize.train.training import Training

    (method,) = methods or ["sgd"]
    workers = given.pop("workers", None)
    report = train(
        _task(Training, f"--method {method}", {"method": method, **given}), workers, move
    )
    return None if report is None else (report, [])


def _compare(
    methods: list[str], given: dict[str, Any], move: Move, *, is_choice: bool = False
) -> Found:
    from sparsewire.tools.optimize.compare.choice import choose
    from sparsewire.tools.optimize.compare.comparison import compare
    from sparsewire.tools.optimize.compare.task import Comparison

    if "top" in given and not is_choice:
        raise OptimizeError("--top is for --choose: it says how many choices to run")
    job = "--choose" if is_choice else "a comparison"
    task = _task(Comparison, job, {"methods": tuple(methods), **given})
    compared = choose(task, move) if is_choice else compare(task, move)
    return None if compared is None else (compared.report(), compared.warnings)
