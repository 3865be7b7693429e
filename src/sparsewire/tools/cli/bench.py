"""`sparsewire bench`: measures collectives, here or in the lab, and operators; results checked."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.command import Commands
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.cli.outer_training import outer
from sparsewire.tools.cli.training import training
from sparsewire.tools.cli.workload import workload
from sparsewire.tools.experiment.extras import require
from sparsewire.tools.experiment.report import ResultFiles

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
OPS = ["sum", "avg", "min", "max", "product"]

_buffers = options.together(
    click.option(
        "--elements",
        help="Buffer sizes, like 25e6 or 64Ki,1Mi; with a B (4KiB) they are bytes. Default: 25e6.",
    ),
    click.option("--bytes", help="Buffer sizes in bytes, instead of --elements."),
    click.option(
        "--density",
        default="1,0.1,0.01",
        help="Densities: shares of non-zero blocks (or elements) per rank.",
    ),
    click.option(
        "--pattern",
        default="blocks:256",
        help="Where the non-zeros lie: blocks:256, blocks:256,same (on every rank alike), "
        "blocks:256,apart (none on two ranks), "
        "random (single elements), zipf:1.1 (by a power law); several separated by |.",
    ),
    click.option(
        "--trace",
        type=options.FILE,
        help="Replay what `sparsewire profile --trace` saved, a directory or a rank's file, in "
        "place of --elements, --density, --pattern and --dtype; by as many ranks as recorded.",
    ),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", help="Element type."),
)

_calls = options.together(
    click.option("--op", type=click.Choice(OPS), default="sum", help="Reduction."),
    click.option(
        "--input",
        type=click.Choice(["dense", "sparse"]),
        default="dense",
        help="Pass arrays, or SparseVectors, whose positions are known before.",
    ),
    click.option(
        "--algorithm",
        default="auto",
        help="Algorithms for sparse input, a row for each: auto, stream, ...",
    ),
    click.option(
        "--precision",
        help="Precision on the wire, like bfloat16 or int8; two for the two phases.",
    ),
    click.option(
        "--result",
        type=click.Choice(["auto", "sparse", "dense"]),
        default="auto",
        help="Form of the result of sparse input: a SparseVector, or a dense array that is used "
        "again and again; auto: dense where sums name a third.",
    ),
    click.option(
        "--against",
        help="Measure these too, interleaved in the same run: gloo (dense), gloo-sparse (its own "
        "all_reduce of sparse tensors). Both need torch.",
    ),
    click.option(
        "--through",
        type=click.Choice(["numpy", "torch", "both"]),
        default="numpy",
        help="Call sparsewire on arrays, which needs no torch, or as a process group of torch: "
        "sparse ones as sparse_coo.",
    ),
    click.option(
        "--iterations", type=options.COUNT, help="Measured calls per case. Default: by size."
    ),
    click.option(
        "--warmup", type=click.IntRange(0), help="Calls before measuring. Default: by size."
    ),
    click.option(
        "--burst",
        type=options.COUNT,
        help="Calls one right after the other, with a buffer each, before results are checked, "
        "which leaves caches and processors cold. Default: 1, and 20 up to 64 KiB.",
    ),
)

_engine = options.together(
    click.option(
        "--arithmetic",
        type=click.Choice(["exact", "fixed"]),
        help="How aggregators add: SPARSEWIRE_ARITHMETIC. Sums in fixed point are checked by their "
        "error bound. Default with xdp: fixed.",
    ),
    click.option(
        "--lanes",
        type=options.COUNT,
        help="Lanes: threads and connections to each peer. Default: as the ranks agree.",
    ),
)


@click.group(cls=Commands)
def bench() -> None:
    """Measure collectives and compression operators; every result is checked."""


bench.add_command(training)
bench.add_command(workload)
bench.add_command(outer)


@bench.command("all_reduce")
@options.where
@_buffers
@_calls
@options.emulated_network
@_engine
@options.seed_of_data
@options.call_timeout
@options.json_file
@options.plot_file("Draw time against density into this PNG.")
def all_reduce(
    hosts: int | None,
    link: str | None,
    ranks: int | None,
    json_file: Path | None,
    plot: Path | None,
    **given: Any,
) -> None:
    """Time all_reduce over sizes, densities and patterns of non-zeros.

    The time of a call is that of its slowest rank; algbw is bytes / time, busbw is
    algbw * 2(n-1)/n. The limit is the time that the payload of the ideal algorithm needs on
    the links. CPU is the sum over all processes. In the lab, sent bytes are counted at the
    interface, headers included; on loopback, by the backend itself.

    Of sparse input, the model's time is what the engine predicts from the link's figures, by which
    "auto" chooses the algorithm in brackets.

    Example: sparsewire bench all_reduce --hosts 4 --link 1gbit --elements 25e6 --against gloo

    Inside the network: sparsewire bench all_reduce --hosts 4 --link 500mbit --transport xdp
    --aggregator-link 2gbit --against gloo
    """
    with exit_on_error():
        from sparsewire.tools.bench.all_reduce import all_reduce_report
        from sparsewire.tools.bench.job import BenchOptions, needs_torch

        if given["trace"] is not None:
            given["trace"] = str(given["trace"].absolute())
            ranks = _recorded_ranks(given["trace"], hosts, ranks)
        if given["transport"] == "xdp":
            given["arithmetic"] = given["arithmetic"] or "fixed"
        cluster = options.cluster_of(hosts, ranks, link, **options.network_of(given))
        measured = BenchOptions(**{each.name: given[each.name] for each in fields(BenchOptions)})
        files = ResultFiles(json_file, plot).checked()
        job = measured.job(cluster.ranks)
        if any(map(needs_torch, job.backends)):
            require("torch", extra="torch")
        all_reduce_report(job, cluster).present(files)


@bench.command()
@options.where
@click.option("--quick", is_flag=True, help="Measure a few cells only.")
@options.seed_of_data
@options.call_timeout
@options.json_file
@options.plot_file("Draw time over the best time into this PNG.")
def grid(
    hosts: int | None,
    link: str | None,
    ranks: int | None,
    quick: bool,
    seed: int,
    timeout: float,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Compare "auto" with every algorithm that it may choose, over sizes and densities.

    Sparse float32 vectors from 1 KiB to 100 MB (as dense ones), 0.01% to 100% dense, with positions
    of their own on every rank; where sums name a third, results go into a dense array. All
    algorithms are measured in turn in the same run, and what is far behind is not measured again.

    Example: sparsewire bench grid --ranks 4 --plot grid.png
    """
    with exit_on_error():
        from sparsewire.tools.bench.grid import FULL, QUICK, grid_report

        cluster = options.cluster_of(hosts, ranks, link)
        files = ResultFiles(json_file, plot).checked()
        job = (QUICK if quick else FULL).job(cluster.ranks, seed, timeout)
        grid_report(job, cluster).present(files)


@bench.command()
@click.option(
    "--operator", help="Operators, with commas between. Default: all, with usual settings."
)
@click.option("--elements", default="25M", help="Elements of the vector, like 25M.")
@click.option("--repetitions", type=options.COUNT, default=5, help="Measured calls of each.")
@options.seed_of_data
@options.json_file
def operators(
    operator: str | None, elements: str, repetitions: int, seed: int, json_file: Path | None
) -> None:
    """Time encode and decode of compression operators.

    The vector is float32, standard normal. GB are of the uncompressed vector, seconds of one core;
    omega is the variance of an unbiased operator, a the contraction of a biased one.

    Example: sparsewire bench operators --operator rand-k:0.01,ternary:inf --elements 1M
    """
    with exit_on_error():
        from sparsewire.tools.bench.operators import OPERATORS, operators_report
        from sparsewire.tools.measure.sizes import parse_elements, split_list

        files = ResultFiles(json_file).checked()
        names = split_list(operator) if operator else OPERATORS
        operators_report(names, parse_elements(elements, 4), repetitions, seed).present(files)


def _recorded_ranks(trace: str, hosts: int | None, ranks: int | None) -> int | None:
    """The number of ranks: on loopback that of the recording, unless the command says one."""
    from sparsewire.tools.bench.traced import traces_in

    recorded = traces_in(trace).ranks
    return recorded if hosts is None and ranks is None and recorded > 1 else ranks
