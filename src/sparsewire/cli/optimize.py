"""`sparsewire optimize`: trains linear models on LIBSVM files, over the sparse collectives."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparsewire.cli.failure import exit_on_error
from sparsewire.cli.signals import exit_by_signal

if TYPE_CHECKING:
    from sparsewire.optimize.report import Item
    from sparsewire.optimize.request import Request

Workers = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Ranks to start here, where no launcher does. Default: 1."),
]
Model = Annotated[
    Literal["logistic", "svm"],
    typer.Option(help="Logistic regression, or a linear SVM with squared hinge loss."),
]
Method = Annotated[
    Literal["sgd", "bcd"],
    typer.Option(help="SGD over all_reduce, or block coordinate descent over all_gather."),
]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the data.")]
L2 = Annotated[
    float | None, typer.Option(min=0, help="Weight of the l2 term. Default: 1 / training rows.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every choice that is random.")]
TestShare = Annotated[
    float, typer.Option(help="Share of the rows to hold out; 0 trains on all of them.")
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="CLASSES",
        help="Classes that count as +1, like 1,2,5. Default: the upper half of the classes.",
    ),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale every row to length 1.")]
Batch = Annotated[int | None, typer.Option(min=1, help="SGD: rows per rank and step. Default: 64.")]
Step = Annotated[
    float | None,
    typer.Option(help="SGD: first step size. Default: from the smoothness of the data."),
]
Algorithm = Annotated[
    str | None, typer.Option(help="SGD: algorithm of the sparse all_reduce. Default: auto.")
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="SGD: bfloat16, float16, int8, int4 or int2 on the wire; two with a comma between "
        "for the two phases. Default: float32."
    ),
]
Block = Annotated[
    int | None, typer.Option(min=1, help="BCD: coordinates per rank and step. Default: 64.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write all numbers and conditions here.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Draw objective and accuracy into this file, like run.png.")
]


def optimize(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="LIBSVM file; also .gz, .bz2.")],
    workers: Workers = None,
    model: Model = "logistic",
    method: Method = "sgd",
    epochs: Epochs = 10,
    l2: L2 = None,
    seed: Seed = 0,
    test_share: TestShare = 0.2,
    positive: Positive = None,
    normalize: Normalize = False,
    batch: Batch = None,
    step: Step = None,
    algorithm: Algorithm = None,
    precision: Precision = None,
    block: Block = None,
    json_file: JsonFile = None,
    plot: Plot = None,
) -> None:
    """Train logistic regression or a linear SVM on a LIBSVM file, on all ranks together.

    Every rank reads the file. SGD divides the rows among the ranks and sums sparse gradients;
    block coordinate descent divides the features and gathers sparse changes of the margins. Start
    the ranks with torchrun, mpirun or srun, or here with --workers.

    Example: sparsewire optimize a9a --workers 4 --epochs 10 --plot a9a.png
    """
    signal.signal(signal.SIGTERM, exit_by_signal)
    with exit_on_error():
        _require_extra()
        from sparsewire.optimize.request import Request

        request = Request(
            data=str(data),
            model=model,
            method=method,
            epochs=epochs,
            l2=l2,
            seed=seed,
            test_share=test_share,
            positive=positive,
            normalize=normalize,
            batch=batch,
            step=step,
            algorithm=algorithm,
            precision=precision,
            block=block,
        )
        _run(request, workers, json_file, plot)


def _require_extra() -> None:
    if find_spec("sklearn") is None or find_spec("scipy") is None:
        from sparsewire.optimize.errors import OptimizeError

        raise OptimizeError('scikit-learn is missing: pip install "sparsewire[optimize]"')


def _run(request: Request, workers: int | None, json_file: Path | None, plot: Path | None) -> None:
    from sparsewire.launcher import is_launched
    from sparsewire.optimize.errors import OptimizeError
    from sparsewire.optimize.launch import run_locally
    from sparsewire.optimize.progress import following
    from sparsewire.optimize.run import run_rank

    if workers is not None and is_launched():
        raise OptimizeError("a launcher has started the ranks already: leave out --workers")
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
        _show(request, items, json_file, plot)


def _show(request: Request, items: list[Item], json_file: Path | None, plot: Path | None) -> None:
    from sparsewire.cli.console import report_console
    from sparsewire.optimize.errors import OptimizeError
    from sparsewire.optimize.plot import save_plot
    from sparsewire.optimize.report import Report
    from sparsewire.optimize.table import describe, findings

    report = Report.from_items(request, items)
    console = report_console()
    console.print(describe(report), markup=False)
    console.print(findings(report))
    try:
        if json_file:
            report.save(json_file)
        if plot:
            save_plot(report, plot)
    except OSError as error:
        raise OptimizeError(f"cannot write {error.filename}: {error.strerror}") from None
