"""Commands that train networks and compare: `sparsewire demo` and `sparsewire bench training`."""

from pathlib import Path

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import check_link, exit_on_error
from sparsewire.tools.experiment.extras import require
from sparsewire.tools.experiment.report import ResultFiles

GRADIENTS, WEIGHTS = "gradients", "weights"
_STEPS = 50
_ONLY_GRADIENTS = ("corpus", "backends", "workers", "hosts")
_DEFAULT_LINKS = {GRADIENTS: "1gbit", WEIGHTS: "100mbit"}


@click.command()
@click.option(
    "--what",
    type=click.Choice([GRADIENTS, WEIGHTS]),
    default=GRADIENTS,
    help="What is sent: gradients of a language model, or new weights to readers.",
)
@click.option(
    "--output",
    type=options.FILE,
    default=Path("sparsewire-demo"),
    help="Folder for report.json, loss.png or reward.png, and the workers' logs.",
)
@click.option(
    "--corpus",
    type=options.FILE,
    help="File or folder of text. Default: the source of Python's own library.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    default=("gloo", "sparsewire"),
    help="Backend of torch.distributed to train over; repeatable.",
)
@click.option("--workers", type=click.IntRange(2, 64), default=4, help="Worker processes.")
@click.option(
    "--hosts",
    type=options.COUNT,
    help="Emulated hosts, of as many workers each. Default: one for each worker.",
)
@click.option(
    "--steps",
    type=click.IntRange(5),
    help="Training steps over each backend, or versions of the weights.  [default: 50]",
)
@click.option(
    "--link",
    help="Speed of each host's link in the lab: 1gbit, 10gbit, ...  [default: 1gbit, or 100mbit]",
)
@click.option("--seed", type=options.SEED, default=0, help="Seed of the model and the negatives.")
@click.pass_context
def demo(
    context: click.Context,
    what: str,
    output: Path,
    corpus: Path | None,
    backends: tuple[str, ...],
    workers: int,
    hosts: int | None,
    steps: int | None,
    link: str | None,
    seed: int,
) -> None:
    """Train a language model over gloo and over sparsewire, and compare.

    The training is an ordinary DistributedDataParallel script; only the backend's name differs.
    As root on Linux, workers are on emulated hosts, each with a link of its own; elsewhere, all
    workers use loopback.

    With --what weights, two ranks train a small language model by reinforcement, and two readers
    sample from it: once all weights are sent to them after each step, and once what changed.

    Example: sudo sparsewire demo --link 1gbit
    """
    steps, link = steps or _STEPS, link or _DEFAULT_LINKS[what]
    if what == WEIGHTS:
        _check_given(context)
        _show_weights(output, steps, link, seed)
        return
    # Before anything that takes long, imports included.
    click.echo(
        f"A language model is trained {steps} steps over {', then over '.join(backends)}, "
        f"by {workers} workers."
    )
    with exit_on_error():
        require("torch", extra="torch")
        require("matplotlib", extra="plots")
        from sparsewire.tools.experiment.cluster import Cluster
        from sparsewire.tools.experiment.progress import bars
        from sparsewire.tools.lab import available
        from sparsewire.tools.training.demo import demo_report, run_demo
        from sparsewire.tools.training.trial import check_backend

        for name in backends:
            check_backend(name)
        per_host = workers // (hosts or workers)
        cluster = Cluster(workers, 0, True, check_link(link), max(per_host, 1))
        if (reason := available()) is not None:
            _tell_of_loopback(reason)
            cluster = Cluster(workers)
        output.mkdir(parents=True, exist_ok=True)
        files = ResultFiles(output / "report.json", output / "loss.png")
        click.echo(f"First, {corpus or 'the source of the standard library'} is read.")
        with bars(stay=True) as move:
            found = run_demo(backends, cluster, corpus, steps, seed, output, move)
        demo_report(found).present(files)
        click.echo(f"Written: {files.json}, {files.plot}")


def _check_given(context: click.Context) -> None:
    """Refuse options that only a demo of gradients has."""
    for name in _ONLY_GRADIENTS:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(own for own in context.command.params if own.name == name)
            raise click.UsageError(f"{option.opts[0]} is of --what {GRADIENTS}: leave it out")


def _show_weights(output: Path, versions: int, link: str, seed: int) -> None:
    click.echo(
        f"Two ranks train a policy by reinforcement, two readers sample, for {versions} versions "
        "of the weights: once all weights go to the readers, then what changed."
    )
    with exit_on_error():
        require("torch", extra="torch")
        require("matplotlib", extra="plots")
        require("xxhash", extra="weights")
        from sparsewire.tools.experiment.cluster import Cluster
        from sparsewire.tools.experiment.progress import bars
        from sparsewire.tools.lab import available
        from sparsewire.tools.training.reinforcement.demo import WORKERS, demo_report, run_demo

        cluster = Cluster(WORKERS, emulated=True, link=check_link(link))
        if (reason := available()) is not None:
            _tell_of_loopback(reason, "the same bytes, and little difference in time")
            cluster = Cluster(WORKERS)
        output.mkdir(parents=True, exist_ok=True)
        files = ResultFiles(output / "report.json", output / "reward.png")
        with bars(stay=True) as move:
            found = run_demo(cluster, versions, seed, output, move)
        demo_report(found).present(files)
        click.echo(f"Written: {files.json}, {files.plot}")


def _tell_of_loopback(
    reason: str, expect: str = "a small speed-up, or none, and equal losses"
) -> None:
    click.secho(
        f"No emulated network: {reason}.\nAll workers use loopback instead, which is many times "
        f"as fast as a network: expect {expect}.",
        fg="yellow",
    )


@click.command()
@click.option(
    "--task",
    default="lstm,digits",
    help="What to train: lstm (a language model), digits (a convolutional network, needs "
    "scikit-learn).",
)
@click.option(
    "--method",
    default="gloo,feedback,diana",
    help="gloo, sparsewire or another backend of torch.distributed (dense), "
    "feedback[/OPERATOR], diana[/OPERATOR], with commas between; the first one is what the "
    "others are compared with. A second operator, behind another slash, is for parameters of "
    "fewer than 131,072 elements.",
)
@click.option("--ranks", type=click.IntRange(2, 64), default=4, help="Ranks that train together.")
@click.option(
    "--steps", type=click.IntRange(5), help="Steps of each training. Default: the task's."
)
@click.option("--seeds", type=options.COUNT, default=1, help="Train so often, with seeds 0, 1, ...")
@click.option(
    "--warmup",
    type=click.IntRange(0),
    help="First steps in which hooks send everything. Default: 2%.",
)
@click.option(
    "--link",
    help="Time steps on emulated hosts with links of this speed, like 100mbit (Linux, root).",
)
@click.option(
    "--timed-steps",
    type=click.IntRange(5),
    default=100,
    help="Steps of each training on emulated links.",
)
@click.option(
    "--text",
    type=options.FILE,
    help="Text for lstm. Default: the source of Python's own library.",
)
@options.json_file
@options.plot_file("Draw losses by steps, bytes and time into this PNG.")
def training(
    task: str,
    method: str,
    ranks: int,
    steps: int | None,
    seeds: int,
    warmup: int | None,
    link: str | None,
    timed_steps: int,
    text: Path | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Train with compressed gradients and with dense ones; compare losses, bytes and times.

    All methods train from the same start on the same batches at the same learning rates. Losses do
    not depend on the links, so that whole trainings run on loopback. With --link, some steps of
    each are then run on emulated hosts, and these are timed.

    Example: sparsewire bench training --link 100mbit --plot training.png
    """
    with exit_on_error():
        from sparsewire.tools.experiment.progress import bars
        from sparsewire.tools.training.comparison import Plan, compare, comparison_report
        from sparsewire.tools.training.trial import Averaging

        files = ResultFiles(json_file, plot).checked()
        tasks = _known(task)
        averagings = [Averaging.parse(name) for name in method.split(",")]
        plan = Plan(tasks, averagings, ranks, steps, seeds, warmup, link, timed_steps, text)
        with bars() as move:
            comparison = compare(plan, move)
        comparison_report(comparison).present(files)


def _known(task: str) -> list[str]:
    from sparsewire.tools.training.trial import TASKS

    tasks = options.named(task, TASKS, "task")
    require("torch", extra="torch")
    if "digits" in tasks:
        require("sklearn", extra="optimize")
    return tasks
