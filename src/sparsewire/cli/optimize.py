"""`sparsewire optimize`: trains linear models over the sparse collectives, or compares methods."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sparsewire.cli.failure import exit_on_error
from sparsewire.cli.optimize_options import (
    COMPARISON,
    L1,
    L2,
    Accuracy,
    Algorithm,
    Batch,
    Block,
    Choose,
    Compressor,
    Data,
    Downlink,
    Epochs,
    JsonFile,
    Latency,
    LinkSpeed,
    Methods,
    Model,
    Normalize,
    Plot,
    Positive,
    Precision,
    Rounds,
    Seed,
    Split,
    Step,
    TestShare,
    Top,
    Workers,
)
from sparsewire.experiment.report import report_console
from sparsewire.experiment.result_files import ResultFiles
from sparsewire.experiment.signals import ending_on

if TYPE_CHECKING:
    from sparsewire.optimize.compare.request import Request as Study
    from sparsewire.optimize.train.report import Item
    from sparsewire.optimize.train.request import Request as Training

AnyRequest = TypeVar("AnyRequest")

_TRAINING = ("sgd", "bcd")
_MOST_RANKS = 64


def _show_methods(wanted: bool) -> None:
    if wanted:
        with exit_on_error():
            _require_extra()
            from sparsewire.optimize.compare.method_table import methods

            report_console().print(methods())
        raise typer.Exit


def optimize(
    data: Data,
    method: Methods = None,
    workers: Workers = None,
    model: Model = None,
    epochs: Epochs = None,
    l2: L2 = None,
    seed: Seed = None,
    positive: Positive = None,
    normalize: Normalize = None,
    step: Step = None,
    batch: Batch = None,
    test_share: TestShare = None,
    algorithm: Algorithm = None,
    precision: Precision = None,
    block: Block = None,
    json_file: JsonFile = None,
    plot: Plot = None,
    compressor: Compressor = None,
    split: Split = None,
    l1: L1 = None,
    rounds: Rounds = None,
    accuracy: Accuracy = None,
    link: LinkSpeed = None,
    downlink: Downlink = None,
    latency: Latency = None,
    choose: Choose = None,
    top: Top = None,
    show_methods: Annotated[
        bool,
        typer.Option(
            "--methods",
            callback=_show_methods,
            is_eager=True,
            help="List the methods to compare, with their operators and options, and exit.",
            rich_help_panel=COMPARISON,
        ),
    ] = False,
) -> None:
    """Train a linear model on all ranks together, or compare methods that send compressed messages.

    **sgd** divides the rows among the ranks and sums sparse gradients; **bcd** divides the
    features and gathers sparse changes of the margins. Start the ranks with torchrun, mpirun or
    srun, or here with --workers.

    Example: sparsewire optimize a9a --workers 4 --epochs 10 --plot a9a.png

    **Other methods** (gd, dcgd, diana, marina, ef21, isega, ...) are compared: how close they come
    to the solution, for how many passes over the data, bits, and seconds on a link. The workers
    are simulated, or the ranks of a launcher.

    Example: sparsewire optimize digits --method diana,dcgd,gd --compressor rand-k:0.05 --split
    label --link 100mbit --plot digits.png
    """
    # What is not given has a default that depends on what is to be done.
    given = {name: value for name, value in locals().items() if value not in (None, [])}
    with ending_on(signal.SIGTERM), exit_on_error():
        _require_extra()
        _dispatch(given)


def _require_extra() -> None:
    if find_spec("sklearn") is None or find_spec("scipy") is None:
        from sparsewire.errors import OptimizeError

        raise OptimizeError('scikit-learn is missing: pip install "sparsewire[optimize]"')


def _dispatch(given: dict[str, Any]) -> None:
    from sparsewire.errors import OptimizeError
    from sparsewire.meeting.launcher import is_launched
    from sparsewire.optimize.compare.request import Request as Study
    from sparsewire.optimize.train.request import Request as Training

    _refuse_workers_under_a_launcher(given)
    methods = _methods(given.pop("method", None))
    files = ResultFiles(given.pop("json_file", None), given.pop("plot", None))
    if not is_launched():
        # Else rank 0 alone writes, and others may have no such folder.
        files.checked()
    is_choice = given.pop("choose", False)
    training = [name for name in methods if re.split("[:/]", name)[0] in _TRAINING]
    if training and training[0] not in _TRAINING:
        raise OptimizeError(f"{training[0]}: sgd and bcd take --batch, --step, --block and others")
    if training and (is_choice or len(methods) > 1):
        raise OptimizeError(f"{training[0]} trains, alone, and takes no part in comparisons")
    if is_choice:
        _choose(_request(Study, "--choose", {"methods": tuple(methods), **given}), files)
    elif methods and not training:
        if "top" in given:
            raise OptimizeError("--top is for --choose: it says how many choices to run")
        _compare(_request(Study, "a comparison", {"methods": tuple(methods), **given}), files)
    else:
        method, workers = (training or ["sgd"])[0], given.pop("workers", None)
        request = _request(Training, f"--method {method}", {"method": method, **given})
        _train(request, workers, files)


def _methods(texts: list[str] | None) -> list[str]:
    """The methods that are named, with commas between or one by one."""
    from sparsewire.errors import OptimizeError

    names = [name.strip() for text in texts or [] for name in text.split(",") if name.strip()]
    if texts and not names:
        raise OptimizeError("--method names none: leave it out, or write for example diana,gd")
    return names


def _refuse_workers_under_a_launcher(given: dict[str, Any]) -> None:
    from sparsewire.errors import OptimizeError
    from sparsewire.meeting.launcher import is_launched

    if "workers" in given and is_launched():
        raise OptimizeError("a launcher has started the ranks already: leave out --workers")


def _request(kind: Callable[..., AnyRequest], job: str, options: dict[str, Any]) -> AnyRequest:
    """The request with these options; those that it does not know belong to other jobs."""
    from sparsewire.errors import OptimizeError

    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            raise OptimizeError(f"--{name.replace('_', '-')} is no option of {job}")
    return kind(**options)


def _train(request: Training, workers: int | None, files: ResultFiles) -> None:
    from sparsewire.errors import OptimizeError
    from sparsewire.optimize.train.launch import run_locally
    from sparsewire.optimize.train.progress import following
    from sparsewire.optimize.train.run import run_rank

    if workers is not None and workers > _MOST_RANKS:
        raise OptimizeError(f"--workers {workers} would start too many: {_MOST_RANKS} at most")
    items: list[Item] = []
    with following(request.epochs) as show:

        def follow(item: Item) -> None:
            items.append(item)
            show(item)

        if workers is None:
            run_rank(request, follow)
        else:
            run_locally(request, workers, follow)
    if items:
        # Rank 0 alone is told how it went.
        _show_training(request, items, files)


def _show_training(request: Training, items: list[Item], files: ResultFiles) -> None:
    from sparsewire.optimize.train.plot import save_plot
    from sparsewire.optimize.train.report import Report
    from sparsewire.optimize.train.table import describe, findings

    report = Report.from_items(request, items)
    console = report_console()
    console.print(describe(report), markup=False)
    console.print(findings(report))
    with files.writing():
        if files.json:
            report.save(files.json)
        if files.plot:
            save_plot(report, files.plot)


def _compare(request: Study, files: ResultFiles) -> None:
    from sparsewire.optimize.compare.comparison import LIMITS, compare
    from sparsewire.optimize.compare.plot import save_plot
    from sparsewire.optimize.compare.progress import following
    from sparsewire.optimize.compare.report import save_json
    from sparsewire.optimize.compare.table import describe, findings

    with following(request.accuracy or LIMITS.accuracy) as follow:
        report = compare(request, follow)
    if report is None:
        return
    _warn(report.warnings)
    console = report_console()
    console.print(describe(report.setting), markup=False, soft_wrap=True)
    console.print(findings(report))
    with files.writing():
        if files.json:
            save_json(report.record(), files.json)
        if files.plot:
            save_plot(report.setting, report.runs, files.plot)


def _choose(request: Study, files: ResultFiles) -> None:
    from sparsewire.optimize.compare.choice import LIMITS, choose
    from sparsewire.optimize.compare.choice_table import ranked, verdict
    from sparsewire.optimize.compare.plot import save_plot
    from sparsewire.optimize.compare.progress import following
    from sparsewire.optimize.compare.report import save_json
    from sparsewire.optimize.compare.table import describe

    with following(request.accuracy or LIMITS.accuracy) as follow:
        ranking = choose(request, follow)
    _warn(ranking.report.warnings)
    console = report_console()
    console.print(describe(ranking.report.setting), markup=False, soft_wrap=True)
    console.print(ranked(ranking))
    console.print(verdict(ranking), markup=False)
    with files.writing():
        if files.json:
            save_json(ranking.record(), files.json)
        if files.plot:
            save_plot(ranking.report.setting, ranking.report.runs, files.plot)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
