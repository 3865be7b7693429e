"""`sparsewire bench training`: trains with compressed and with dense gradients, and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsewire.cli.bench import JsonFile
from sparsewire.cli.failure import exit_on_error, require
from sparsewire.experiment.report import ResultFiles

Tasks = Annotated[
    str,
    typer.Option(
        "--task",
        help="What to train: lstm (a language model), digits (a convolutional network, needs "
        "scikit-learn).",
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        "--method",
        help="gloo or sparsewire (dense), feedback[/OPERATOR], diana[/OPERATOR], with commas "
        "between; the first one is what the others are compared with. A second operator, behind "
        "another slash, is for parameters of fewer than 131,072 elements.",
    ),
]
TimedLink = Annotated[
    str | None,
    typer.Option(
        "--link",
        help="Time steps on emulated hosts with links of this speed, like 100mbit (Linux, root).",
    ),
]
LossPlot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw losses by steps, bytes and time into this PNG."),
]


def training(
    task: Tasks = "lstm,digits",
    method: Methods = "gloo,feedback,diana",
    ranks: Annotated[int, typer.Option(min=2, max=64, help="Ranks that train together.")] = 4,
    steps: Annotated[
        int | None, typer.Option(min=5, help="Steps of each training. Default: the task's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so often, with seeds 0, 1, ...")] = 1,
    warmup: Annotated[
        int | None,
        typer.Option(min=0, help="First steps in which hooks send everything. Default: 2%."),
    ] = None,
    link: TimedLink = None,
    timed_steps: Annotated[
        int, typer.Option(min=5, help="Steps of each training on emulated links.")
    ] = 100,
    text: Annotated[
        Path | None,
        typer.Option(help="Text for lstm. Default: the source of Python's own library."),
    ] = None,
    json_file: JsonFile = None,
    plot: LossPlot = None,
) -> None:
    """Train with compressed gradients and with dense ones; compare losses, bytes and times.

    All methods train from the same start on the same batches at the same learning rates. Losses do
    not depend on the links, so that whole trainings run on loopback. With --link, some steps of
    each are then run on emulated hosts, and these are timed.

    Example: sparsewire bench training --link 100mbit --plot training.png
    """
    with exit_on_error():
        from sparsewire.experiment.progress import bars
        from sparsewire.training.averaging import Averaging
        from sparsewire.training.comparison import Plan, compare
        from sparsewire.training.findings import comparison_report

        files = ResultFiles(json_file, plot).checked()
        tasks, methods = _known(task.split(",")), [Averaging.parse(m) for m in method.split(",")]
        plan = Plan(tasks, methods, ranks, steps, seeds, warmup, link, timed_steps, text)
        with bars() as move:
            comparison = compare(plan, move)
        comparison_report(comparison).present(files)


def _known(tasks: list[str]) -> list[str]:
    from sparsewire.training.tasks import TASKS

    for task in tasks:
        if task not in TASKS:
            raise ValueError(f"task {task!r} is not known: use {' or '.join(TASKS)}")
    require("torch", extra="torch")
    if "digits" in tasks:
        require("sklearn", extra="optimize")
    return tasks
