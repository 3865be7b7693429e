"""`sparsewire bench workload`: the six workloads of OmniReduce over one method after another."""

from dataclasses import replace
from typing import Literal

import typer

from sparsewire.cli.bench import Hosts, JsonFile, Link, Ranks, cluster_of
from sparsewire.cli.failure import exit_on_error, require
from sparsewire.experiment.report import ResultFiles


def workload(
    name: str = typer.Option(
        "deeplight,lstm,ncf,ncf-shared,bert,vgg19,resnet152",
        help="What to run, with commas between; bert needs transformers.",
    ),
    hosts: Hosts = None,
    link: Link = None,
    ranks: Ranks = None,
    method: str = typer.Option(
        "gloo,sparsewire,feedback",
        help="gloo, sparsewire or another backend of torch.distributed (dense), the same with "
        "-sparse behind it (tables with sparse=True; left out where there are none), "
        "feedback[/OPERATOR] (1% of the blocks), diana[/OPERATOR], with commas between; the first "
        "one is what the others are compared with.",
    ),
    mode: Literal["training", "gradients"] = typer.Option(
        "training",
        help="Time real steps, or replay gradients that were recorded: then a step is "
        "communication and --compute.",
    ),
    compute: float = typer.Option(
        0.0, min=0, help="Milliseconds that a step computes, with --mode gradients."
    ),
    size: Literal["published", "here", "tiny"] = typer.Option(
        "here", help="As published, scaled for a machine of 24 GiB, or for a look."
    ),
    aggregators: int = typer.Option(
        0, min=0, help="Dedicated aggregators, in the lab on hosts of their own."
    ),
    steps: int = typer.Option(5, min=1, help="Measured steps over each method."),
    warmup: int = typer.Option(2, min=2, help="Steps before; DDP makes its buckets in them."),
    recorded: int = typer.Option(1, min=1, help="Steps whose gradients are recorded."),
    seed: int = typer.Option(0, min=0, help="Seed of the model and the data."),
    train: int = typer.Option(
        0,
        min=0,
        help="Also train so many steps on loopback, over the first method and those that "
        "compress, and tell the losses at the end. Default: do not.",
    ),
    seeds: int = typer.Option(1, min=1, help="How often to train, each time with another seed."),
    timeout: float = typer.Option(600.0, min=1, help="Seconds that one call may take."),
    json_file: JsonFile = None,
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
        names = _known(name.split(","))
        cluster = cluster_of(hosts, ranks, link, aggregators=aggregators)
        from sparsewire.training.workloads.comparison import methods_for, workload_report
        from sparsewire.training.workloads.losses import Trainings
        from sparsewire.training.workloads.measure import Order

        files = ResultFiles(json_file).checked()
        order = Order(
            name="",
            size=size,
            mode=mode,
            methods=[],
            steps=steps,
            warmup=warmup,
            recorded=recorded,
            compute_s=compute / 1e3,
            seed=seed,
            timeout_s=timeout,
        )
        orders = [
            replace(order, name=each, methods=methods_for(each, method.split(",")))
            for each in names
        ]
        trainings = Trainings.checked(train, seeds, orders[0].methods) if train else None
        workload_report(orders, cluster, trainings).present(files)


def _known(names: list[str]) -> list[str]:
    from sparsewire.training.workloads.catalogue import WORKLOADS

    for name in names:
        if name not in WORKLOADS:
            raise ValueError(f"workload {name!r} is not known: use {', '.join(WORKLOADS)}")
        if needed := WORKLOADS[name].needs:
            require(needed, extra="workloads")
    return names
