"""`sparsewire bench`: measures collectives, here or in the lab, and operators; results checked."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sparsewire.cli.failure import exit_on_error, require
from sparsewire.experiment.report import ResultFiles

if TYPE_CHECKING:
    from sparsewire.experiment.cluster import Cluster

app = typer.Typer(no_args_is_help=True)

_DEFAULT_RANKS = 4

Hosts = Annotated[
    int | None,
    typer.Option(min=1, help="Emulated hosts (Linux, root). Default: loopback."),
]
Link = Annotated[str | None, typer.Option(help="Speed of each emulated host's link, like 1gbit.")]
Links = Annotated[
    int,
    typer.Option(
        min=1, max=8, help="Links of each emulated host; sparsewire uses all, gloo one at a time."
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Ranks on loopback, {_DEFAULT_RANKS} by default, or on each emulated host, 1."
    ),
]
Transport = Literal["tcp", "udp", "xdp"]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the data.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds that one call may take.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write all numbers and conditions here.")
]


@app.callback()
def bench() -> None:
    """Measure collectives and compression operators; every result is checked."""


@app.command("all_reduce")
def all_reduce(
    hosts: Hosts = None,
    link: Link = None,
    links: Links = 1,
    ranks: Ranks = None,
    elements: str | None = typer.Option(
        None,
        help="Buffer sizes, like 25e6 or 64Ki,1Mi; with a B (4KiB) they are bytes. Default: 25e6.",
    ),
    bytes: str | None = typer.Option(None, help="Buffer sizes in bytes, instead of --elements."),
    density: str = typer.Option(
        "1,0.1,0.01", help="Densities: shares of non-zero blocks (or elements) per rank."
    ),
    pattern: str = typer.Option(
        "blocks:256",
        help="Where the non-zeros lie: blocks:256, blocks:256,same (on every rank alike), "
        "blocks:256,apart (none on two ranks), "
        "random (single elements), zipf:1.1 (by a power law); several separated by |.",
    ),
    trace: Path | None = typer.Option(
        None,
        help="Replay what `sparsewire profile --trace` saved, a directory or a rank's file, in "
        "place of --elements, --density, --pattern and --dtype; by as many ranks as recorded.",
    ),
    dtype: Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"] = typer.Option(
        "float32", help="Element type."
    ),
    op: Literal["sum", "avg", "min", "max", "product"] = typer.Option("sum", help="Reduction."),
    input: Literal["dense", "sparse"] = typer.Option(
        "dense", help="Pass arrays, or SparseVectors, whose positions are known before."
    ),
    algorithm: str = typer.Option(
        "auto", help="Algorithms for sparse input, a row for each: auto, stream, ..."
    ),
    precision: str | None = typer.Option(
        None, help="Precision on the wire, like bfloat16 or int8; two for the two phases."
    ),
    result: Literal["auto", "sparse", "dense"] = typer.Option(
        "auto",
        help="Form of the result of sparse input: a SparseVector, or a dense array that is used "
        "again and again; auto: dense where sums name a third.",
    ),
    against: str | None = typer.Option(
        None,
        help="Measure these too, interleaved in the same run: gloo (dense), gloo-sparse (its own "
        "all_reduce of sparse tensors). Both need torch.",
    ),
    through: Literal["numpy", "torch", "both"] = typer.Option(
        "numpy",
        help="Call sparsewire on arrays, which needs no torch, or as a process group of torch: "
        "sparse ones as sparse_coo.",
    ),
    iterations: int | None = typer.Option(
        None, min=1, help="Measured calls per case. Default: by size."
    ),
    warmup: int | None = typer.Option(
        None, min=0, help="Calls before measuring. Default: by size."
    ),
    burst: int | None = typer.Option(
        None,
        min=1,
        help="Calls one right after the other, with a buffer each, before results are checked, "
        "which leaves caches and processors cold. Default: 1, and 20 up to 64 KiB.",
    ),
    aggregators: int = typer.Option(
        0, min=0, help="Dedicated aggregators, in the lab on hosts of their own."
    ),
    aggregator_link: str | None = typer.Option(
        None, help="Speed of their links. Default: that of --link."
    ),
    transport: Transport | None = typer.Option(
        None,
        help="What carries tensors to aggregators: SPARSEWIRE_TRANSPORT. With udp or xdp there is "
        "one aggregator at least; xdp needs --hosts.",
    ),
    arithmetic: Literal["exact", "fixed"] | None = typer.Option(
        None,
        help="How aggregators add: SPARSEWIRE_ARITHMETIC. Sums in fixed point are checked by their "
        "error bound. Default with xdp: fixed.",
    ),
    loss: str | None = typer.Option(
        None,
        help="Share of packets that are lost, each way: 1% or 0.01. In the lab real ones, of all "
        "backends, and without offloads, also with 0; on loopback what --transport udp sends.",
    ),
    mtu: int | None = typer.Option(
        None, min=576, max=65535, help="Largest packet on the links of the lab, in bytes."
    ),
    racks: int = typer.Option(
        1, min=1, help="Racks of the lab, each with a switch; the aggregators are in the first."
    ),
    trunk: str | None = typer.Option(
        None, help="Speed of the trunk from each further rack to the first, both ways."
    ),
    hierarchy: bool = typer.Option(
        False,
        "--hierarchy",
        help="An aggregator in each rack, below one for all, with --transport udp or xdp.",
    ),
    lanes: int | None = typer.Option(
        None,
        min=1,
        help="Lanes: threads and connections to each peer. Default: as the ranks agree.",
    ),
    seed: Seed = 1,
    timeout: Timeout = 300.0,
    json_file: JsonFile = None,
    plot: Path | None = typer.Option(None, help="Draw time against density into this PNG."),
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
    given = {**locals(), "arithmetic": arithmetic or ("fixed" if transport == "xdp" else None)}
    with exit_on_error():
        from sparsewire.bench.all_reduce import all_reduce_report
        from sparsewire.bench.job import BenchOptions, needs_torch
        from sparsewire.lab import parse_loss
        from sparsewire.lab.aggregators import needed

        if trace is not None:
            given["trace"] = str(trace.absolute())
            ranks = _recorded_ranks(given["trace"], hosts, ranks)
        cluster = cluster_of(
            hosts,
            ranks,
            link,
            links=links,
            aggregators=needed(aggregators, transport, racks if hierarchy else 0),
            aggregator_link=aggregator_link,
            transport=transport,
            loss=None if loss is None else parse_loss(loss),
            mtu=mtu,
            racks=racks,
            trunk=trunk,
            levels=2 if hierarchy else 1,
        )
        options = BenchOptions(**{field.name: given[field.name] for field in fields(BenchOptions)})
        files = ResultFiles(json_file, plot).checked()
        job = options.job(cluster.ranks)
        if any(map(needs_torch, job.backends)):
            require("torch", extra="torch")
        all_reduce_report(job, cluster).present(files)


@app.command("grid")
def grid(
    hosts: Hosts = None,
    link: Link = None,
    ranks: Ranks = None,
    quick: bool = typer.Option(False, "--quick", help="Measure a few cells only."),
    seed: Seed = 1,
    timeout: Timeout = 300.0,
    json_file: JsonFile = None,
    plot: Path | None = typer.Option(None, help="Draw time over the best time into this PNG."),
) -> None:
    """Compare "auto" with every algorithm that it may choose, over sizes and densities.

    Sparse float32 vectors from 1 KiB to 100 MB (as dense ones), 0.01% to 100% dense, with positions
    of their own on every rank; where sums name a third, results go into a dense array. All
    algorithms are measured in turn in the same run, and what is far behind is not measured again.

    Example: sparsewire bench grid --ranks 4 --plot grid.png
    """
    with exit_on_error():
        from sparsewire.bench.grid import FULL, QUICK, grid_report

        cluster = cluster_of(hosts, ranks, link)
        files = ResultFiles(json_file, plot).checked()
        job = (QUICK if quick else FULL).job(cluster.ranks, seed, timeout)
        grid_report(job, cluster).present(files)


@app.command("operators")
def operators(
    operator: str | None = typer.Option(
        None, help="Operators, with commas between. Default: all, with usual settings."
    ),
    elements: str = typer.Option("25M", help="Elements of the vector, like 25M."),
    repetitions: int = typer.Option(5, min=1, help="Measured calls of each."),
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Time encode and decode of compression operators.

    The vector is float32, standard normal. GB are of the uncompressed vector, seconds of one core;
    omega is the variance of an unbiased operator, a the contraction of a biased one.

    Example: sparsewire bench operators --operator rand-k:0.01,ternary:inf --elements 1M
    """
    with exit_on_error():
        from sparsewire.bench.operators import OPERATORS, operators_report
        from sparsewire.measure.sizes import parse_elements, split_list

        files = ResultFiles(json_file).checked()
        names = split_list(operator) if operator else OPERATORS
        operators_report(names, parse_elements(elements, 4), repetitions, seed).present(files)


def _recorded_ranks(trace: str, hosts: int | None, ranks: int | None) -> int | None:
    """On loopback as many ranks as recorded, unless somebody says how many."""
    from sparsewire.bench.traced import traces_in

    recorded = traces_in(trace).ranks
    return recorded if hosts is None and ranks is None and recorded > 1 else ranks


def cluster_of(
    hosts: int | None,
    ranks: int | None,
    link: str | None,
    **others: Any,
) -> Cluster:
    """`others` are further fields of the cluster."""
    from sparsewire.experiment.cluster import Cluster

    if hosts is None:
        return Cluster(ranks or _DEFAULT_RANKS, link=link, **others)
    per_host = ranks or 1
    return Cluster(hosts * per_host, emulated=True, link=link, ranks_per_host=per_host, **others)
