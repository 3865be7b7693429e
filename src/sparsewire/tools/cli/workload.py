"""`sparsewire bench workload`: the six workloads of OmniReduce over one method after another."""

from pathlib import Path
from typing import Any

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.experiment.extras import require
from sparsewire.tools.experiment.report import ResultFiles


@click.command()
@click.option(
    "--name",
    default="deeplight,lstm,ncf,ncf-shared,bert,vgg19,resnet152",
    help="What to run, with commas between; bert needs transformers.",
)
@options.where
@click.option(
    "--method",
    default="gloo,sparsewire,feedback",
    help="gloo, sparsewire or another backend of torch.distributed (dense), the same with "
    "-sparse behind it (tables with sparse=True; left out where there are none), "
    "feedback[/OPERATOR] (1% of the blocks), diana[/OPERATOR], with commas between; the first "
    "one is what the others are compared with.",
)
@click.option(
    "--mode",
    type=click.Choice(["training", "gradients"]),
    default="training",
    help="Time real steps, or replay gradients that were recorded: then a step is "
    "communication and --compute.",
)
@click.option(
    "--compute",
    type=click.FloatRange(0),
    default=0.0,
    help="Milliseconds that a step computes, with --mode gradients.",
)
@click.option(
    "--size",
    type=click.Choice(["published", "here", "tiny"]),
    default="here",
    help="As published, scaled for a machine of 24 GiB, or for a look.",
)
@options.aggregators
@click.option("--steps", type=options.COUNT, default=5, help="Measured steps over each method.")
@click.option(
    "--warmup",
    type=click.IntRange(2),
    default=2,
    help="Steps before; DDP makes its buckets in them.",
)
@click.option(
    "--recorded", type=options.COUNT, default=1, help="Steps whose gradients are recorded."
)
@click.option("--seed", type=options.SEED, default=0, help="Seed of the model and the data.")
@click.option(
    "--train",
    type=click.IntRange(0),
    default=0,
    help="Also train so many steps on loopback, over the first method and those that "
    "compress, and tell the losses at the end. Default: do not.",
)
@click.option(
    "--seeds",
    type=options.COUNT,
    default=1,
    help="How often to train, each time with another seed.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=600.0,
    help="Seconds that one call may take.",
)
@options.json_file
def workload(
    name: str,
    hosts: int | None,
    link: str | None,
    ranks: int | None,
    method: str,
    compute: float,
    aggregators: int,
    train: int,
    seeds: int,
    timeout: float,
    json_file: Path | None,
    **order: Any,
) -> None:
    """Train DeepLight, LSTM, NCF, BERT, VGG19 and ResNet152 over DDP, and compare.

    Models have the shapes of OmniReduce's runs, scaled where --size says so; data are made by seed,
    with the skew of what they stand for. On one machine, computation is many times as slow as on
    GPUs: --mode gradients records the gradients of real steps and replays them, so that a step is
    communication beside a stated time of computation.

    Example: sparsewire bench workload --name deeplight --hosts 4 --link 1gbit --mode gradients
    """
    with exit_on_error():
        require("torch", extra="torch")
        names = _known(name)
        cluster = options.cluster_of(hosts, ranks, link, aggregators=aggregators)
        from sparsewire.tools.training.workloads.comparison import methods_for, workload_report
        from sparsewire.tools.training.workloads.losses import Trainings
        from sparsewire.tools.training.workloads.measure import Order

        files = ResultFiles(json_file).checked()
        orders = [
            Order(
                name=each,
                methods=methods_for(each, method.split(",")),
                compute_s=compute / 1e3,
                timeout_s=timeout,
                **order,
            )
            for each in names
        ]
        trainings = Trainings.checked(train, seeds, orders[0].methods) if train else None
        workload_report(orders, cluster, trainings).present(files)


def _known(name: str) -> list[str]:
    from sparsewire.tools.training.workloads.catalogue import WORKLOADS

    names = options.named(name, WORKLOADS, "workload")
    for needed in filter(None, (WORKLOADS[each].needs for each in names)):
        require(needed, extra="workloads")
    return names
