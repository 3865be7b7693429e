"""`sparsewire bench outer`: a GPT trained across slow links, by each way to average."""

from pathlib import Path

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import check_link, exit_on_error
from sparsewire.tools.experiment.extras import require
from sparsewire.tools.experiment.report import ResultFiles


@click.command()
@click.option(
    "--method",
    help="Methods, with commas between, such as ddp-gloo,diloco; the first one is what the others "
    "are compared with. With :5 behind it, one has so many seeds. Default: all.",
)
@click.option("--hosts", type=click.IntRange(2, 64), default=4, help="Replicas, a host for each.")
@click.option("--link", default="20mbit,100mbit,1gbit", help="Speeds of links to time steps at.")
@click.option("--steps", type=options.COUNT, default=2400, help="Steps of a training.")
@click.option(
    "--longer-steps",
    type=options.COUNT,
    default=3600,
    help="Steps of a further training of methods that send seldom: it may be the first there.",
)
@click.option("--longer-seeds", type=click.IntRange(0), default=1, help="How often that is run.")
@click.option("--seeds", type=options.COUNT, default=3, help="Trainings of each method.")
@click.option(
    "--tuning-steps",
    type=click.IntRange(0),
    default=600,
    help="Steps of a trial, of which there are some for each rate of a method; 0: no trials.",
)
@click.option(
    "--pretraining",
    type=options.COUNT,
    default=3000,
    help="Steps of the training whose checkpoint all trainings start from.",
)
@click.option(
    "--between", type=options.COUNT, default=120, help="Steps from one held-out loss to the next."
)
@click.option("--layers", type=options.COUNT, default=2, help="Layers of the GPT.")
@click.option("--width", type=options.COUNT, default=192, help="Its width.")
@click.option("--batch", type=options.COUNT, default=2, help="Windows of a replica in a step.")
@click.option("--context", type=options.COUNT, default=64, help="Characters of a window.")
@click.option(
    "--compute",
    type=click.FloatRange(0, min_open=True),
    help="Milliseconds of computation in timed steps. Default: what a step takes here.",
)
@click.option(
    "--text",
    type=options.FILE,
    help="File or folder of text. Default: the source of Python's own library.",
)
@click.option(
    "--folder",
    type=options.FILE,
    help="Keep each run here; what is kept there is not run again.",
)
@options.json_file
@options.plot_file("Draw losses against bytes and times into this PNG.")
def outer(
    method: str | None,
    hosts: int,
    link: str,
    steps: int,
    longer_steps: int,
    longer_seeds: int,
    seeds: int,
    tuning_steps: int,
    pretraining: int,
    between: int,
    layers: int,
    width: int,
    batch: int,
    context: int,
    compute: float | None,
    text: Path | None,
    folder: Path | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Train a GPT on emulated hosts by each way to average; compare losses, bytes and times.

    Gradients are averaged at each step (ddp-...), or models by the rounds of an outer optimizer.
    All methods read as many characters, and their rates are tuned by one rule. Whole trainings run
    on links without a limit, where interfaces count bytes. Times come from steps on links of each
    speed that sleep for as long as one takes a replica with a core to itself.

    Example: sparsewire bench outer --method ddp-gloo,diloco,sparseloco --link 100mbit
    """
    with exit_on_error():
        require("torch", extra="torch")
        from sparsewire.tools.experiment.progress import bars
        from sparsewire.tools.training.outer.comparison import Plan, compare
        from sparsewire.tools.training.outer.gpt import Shape
        from sparsewire.tools.training.outer.order import HEADS
        from sparsewire.tools.training.outer.report import outer_report

        files = ResultFiles(json_file, plot).checked()
        links = [check_link(each) for each in link.split(",")]
        plan = Plan(
            _seeds_of(method, seeds),
            longer_seeds,
            hosts,
            links,
            steps,
            longer_steps,
            tuning_steps,
            pretraining,
            between,
            Shape(layers, width, HEADS, context, batch),
            compute and compute / 1e3,
            text,
            folder,
        )
        with bars() as move:
            comparison = compare(plan, move)
        outer_report(comparison).present(files)


def _seeds_of(method: str | None, seeds: int) -> dict[str, int]:
    """How many seeds each method that is named has."""
    from sparsewire.tools.training.outer.methods import METHODS

    found: dict[str, int] = {}
    for each in (method or ",".join(METHODS)).split(","):
        name, _, own = each.partition(":")
        options.named(name, METHODS, "method")
        found[name] = int(own) if own else seeds
        if found[name] > next(iter(found.values())):
            raise ValueError(f"{name} has more seeds than the first method: give that as many")
    return found
