"""Commands that train networks and compare: `sparsewire demo` and `sparsewire bench training`."""

from pathlib import Path

import typer

from sparsewire.cli.bench import JsonFile
from sparsewire.cli.failure import check_link, exit_on_error, require
from sparsewire.experiment.report import ResultFiles

_DEFAULT_BACKENDS = ["gloo", "sparsewire"]


def demo(
    output: Path = typer.Option(
        Path("sparsewire-demo"), help="Folder for report.json, loss.png and the workers' logs."
    ),
    corpus: Path | None = typer.Option(
        None, help="File or folder of text. Default: the source of Python's own library."
    ),
    backend: list[str] | None = typer.Option(
        None,
        help="Backend of torch.distributed to train over; repeatable. Default: gloo and "
        "sparsewire.",
    ),
    workers: int = typer.Option(4, min=2, max=64, help="Worker processes."),
    hosts: int | None = typer.Option(
        None, min=1, help="Emulated hosts, of as many workers each. Default: one for each worker."
    ),
    steps: int = typer.Option(50, min=5, help="Training steps over each backend."),
    link: str = typer.Option(
        "1gbit", help="Speed of each host's link in the lab: 1gbit, 10gbit, ..."
    ),
    seed: int = typer.Option(0, min=0, help="Seed of the model and the negatives."),
) -> None:
    """Train a language model over gloo and over sparsewire, and compare.

    The training is an ordinary DistributedDataParallel script; only the backend's name differs.
    As root on Linux, workers are on emulated hosts, each with a link of its own; elsewhere, all
    workers use loopback.

    Example: sudo sparsewire demo --link 1gbit
    """
    backends = backend or _DEFAULT_BACKENDS
    # Before anything that takes long, imports included.
    typer.echo(
        f"A language model is trained {steps} steps over {', then over '.join(backends)}, "
        f"by {workers} workers."
    )
    with exit_on_error():
        require("torch", extra="torch")
        from sparsewire.experiment.cluster import Cluster
        from sparsewire.experiment.progress import bars
        from sparsewire.lab import available
        from sparsewire.training.demo import demo_report, run_demo
        from sparsewire.training.trial import check_backend

        for name in backends:
            check_backend(name)
        per_host = workers // (hosts or workers)
        cluster = Cluster(workers, 0, True, check_link(link), max(per_host, 1))
        if (reason := available()) is not None:
            _tell_of_loopback(reason)
            cluster = Cluster(workers)
        output.mkdir(parents=True, exist_ok=True)
        files = ResultFiles(output / "report.json", output / "loss.png")
        typer.echo(f"First, {corpus or 'the source of the standard library'} is read.")
        with bars(stay=True) as move:
            found = run_demo(backends, cluster, corpus, steps, seed, output, move)
        demo_report(found).present(files)
        typer.echo(f"Written: {files.json}, {files.plot}")


def _tell_of_loopback(reason: str) -> None:
    typer.secho(
        f"No emulated network: {reason}.\nAll workers use loopback instead, which is many times "
        "as fast as a network: expect a small speed-up, or none, and equal losses.",
        fg="yellow",
    )


def training(
    task: str = typer.Option(
        "lstm,digits",
        help="What to train: lstm (a language model), digits (a convolutional network, needs "
        "scikit-learn).",
    ),
    method: str = typer.Option(
        "gloo,feedback,diana",
        help="gloo, sparsewire or another backend of torch.distributed (dense), "
        "feedback[/OPERATOR], diana[/OPERATOR], with commas between; the first one is what the "
        "others are compared with. A second operator, behind another slash, is for parameters of "
        "fewer than 131,072 elements.",
    ),
    ranks: int = typer.Option(4, min=2, max=64, help="Ranks that train together."),
    steps: int | None = typer.Option(
        None, min=5, help="Steps of each training. Default: the task's."
    ),
    seeds: int = typer.Option(1, min=1, help="Train so often, with seeds 0, 1, ..."),
    warmup: int | None = typer.Option(
        None, min=0, help="First steps in which hooks send everything. Default: 2%."
    ),
    link: str | None = typer.Option(
        None,
        help="Time steps on emulated hosts with links of this speed, like 100mbit (Linux, root).",
    ),
    timed_steps: int = typer.Option(100, min=5, help="Steps of each training on emulated links."),
    text: Path | None = typer.Option(
        None, help="Text for lstm. Default: the source of Python's own library."
    ),
    json_file: JsonFile = None,
    plot: Path | None = typer.Option(
        None, help="Draw losses by steps, bytes and time into this PNG."
    ),
) -> None:
    """Train with compressed gradients and with dense ones; compare losses, bytes and times.

    All methods train from the same start on the same batches at the same learning rates. Losses do
    not depend on the links, so that whole trainings run on loopback. With --link, some steps of
    each are then run on emulated hosts, and these are timed.

    Example: sparsewire bench training --link 100mbit --plot training.png
    """
    with exit_on_error():
        from sparsewire.experiment.progress import bars
        from sparsewire.training.comparison import Plan, compare, comparison_report
        from sparsewire.training.trial import Averaging

        files = ResultFiles(json_file, plot).checked()
        tasks = _known(task.split(","))
        averagings = [Averaging.parse(name) for name in method.split(",")]
        plan = Plan(tasks, averagings, ranks, steps, seeds, warmup, link, timed_steps, text)
        with bars() as move:
            comparison = compare(plan, move)
        comparison_report(comparison).present(files)


def _known(tasks: list[str]) -> list[str]:
    from sparsewire.training.trial import TASKS

    for task in tasks:
        if task not in TASKS:
            raise ValueError(f"task {task!r} is not known: use {' or '.join(TASKS)}")
    require("torch", extra="torch")
    if "digits" in tasks:
        require("sklearn", extra="optimize")
    return tasks
