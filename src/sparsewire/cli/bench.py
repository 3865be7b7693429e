"""`sparsewire bench`: measures collectives here or in the lab, beside gloo, results checked."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from sparsewire.bench.cluster import Cluster
    from sparsewire.bench.request import Request

app = typer.Typer(no_args_is_help=True)

_DEFAULT_RANKS = 4
_DEFAULT_SIZE = "25e6"
_TABLE_WIDTH = 100


Hosts = Annotated[
    int | None,
    typer.Option(min=2, help="Emulated hosts, one rank on each (Linux, root). Default: loopback."),
]
Link = Annotated[str | None, typer.Option(help="Speed of each emulated host's link, like 1gbit.")]
Ranks = Annotated[
    int | None, typer.Option(min=2, help=f"Ranks on loopback. Default: {_DEFAULT_RANKS}.")
]
Elements = Annotated[
    str | None,
    typer.Option(
        help="Buffer sizes, like 25e6 or 64Ki,1Mi; with a B (4KiB) they are bytes. "
        f"Default: {_DEFAULT_SIZE}."
    ),
]
Bytes = Annotated[
    str | None, typer.Option("--bytes", help="Buffer sizes in bytes, instead of --elements.")
]
Densities = Annotated[
    str, typer.Option(help="Densities: shares of non-zero blocks (or elements) per rank.")
]
Patterns = Annotated[
    str,
    typer.Option(
        help="Where the non-zeros lie: blocks:256, blocks:256,same (on every rank alike), "
        "random (single elements); several separated by |."
    ),
]
Dtype = Annotated[
    Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"],
    typer.Option(help="Element type."),
]
Op = Annotated[Literal["sum", "avg", "min", "max", "product"], typer.Option(help="Reduction.")]
Against = Annotated[
    Literal["gloo"] | None, typer.Option(help="Measure this too, interleaved in the same run.")
]
Through = Annotated[
    Literal["numpy", "torch"],
    typer.Option(help="Call sparsewire on arrays, or as a process group of torch."),
]
Iterations = Annotated[
    int | None, typer.Option(min=1, help="Measured calls per case. Default: by size.")
]
Warmup = Annotated[
    int | None, typer.Option(min=0, help="Calls before measuring. Default: by size.")
]
Aggregators = Annotated[
    int, typer.Option(min=0, help="Dedicated aggregators, in the lab on hosts of their own.")
]
Lanes = Annotated[
    int | None, typer.Option(min=1, help="Lanes: threads and connections to each peer.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the data.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds that one call may take.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write all numbers and conditions here.")
]
Plot = Annotated[Path | None, typer.Option(help="Draw time against density into this PNG.")]


@app.callback()
def bench() -> None:
    """Measure collectives; every result is checked."""


@app.command("all_reduce")
def all_reduce(
    hosts: Hosts = None,
    link: Link = None,
    ranks: Ranks = None,
    elements: Elements = None,
    size: Bytes = None,
    density: Densities = "1,0.1,0.01",
    pattern: Patterns = "blocks:256",
    dtype: Dtype = "float32",
    op: Op = "sum",
    against: Against = None,
    through: Through = "numpy",
    iterations: Iterations = None,
    warmup: Warmup = None,
    aggregators: Aggregators = 0,
    lanes: Lanes = None,
    seed: Seed = 1,
    timeout: Timeout = 300.0,
    json_file: JsonFile = None,
    plot: Plot = None,
) -> None:
    """Time all_reduce over sizes, densities and patterns of non-zeros.

    The time of a call is that of its slowest rank; algbw is bytes / time, busbw is
    algbw * 2(n-1)/n. The limit is the time that the payload of the ideal algorithm needs on
    the links. CPU is the sum over all processes. In the lab, sent bytes are counted at the
    interface, headers included; on loopback, by the backend itself.

    Example: sparsewire bench all_reduce --hosts 4 --link 1gbit --elements 25e6 --against gloo
    """
    from sparsewire.bench.cluster import Cluster
    from sparsewire.bench.request import Request
    from sparsewire.errors import Error

    try:
        if hosts and ranks:
            raise ValueError("give --hosts (emulated) or --ranks (loopback), not both")
        if size and elements:
            raise ValueError("give --elements or --bytes, not both")
        cluster = Cluster(hosts or ranks or _DEFAULT_RANKS, aggregators, hosts is not None, link)
        request = Request(
            sizes=size or elements or _DEFAULT_SIZE,
            size_unit="bytes" if size else "elements",
            densities=density,
            patterns=pattern,
            dtype=dtype,
            op=op,
            against=against,
            through=through,
            iterations=iterations,
            warmup=warmup,
            lanes=lanes,
            seed=seed,
            timeout_s=timeout,
        )
        _run(request, cluster, json_file, plot)
    except (Error, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _run(request: Request, cluster: Cluster, json_file: Path | None, plot: Path | None) -> None:
    from rich.console import Console

    from sparsewire.bench.all_reduce import describe, run_all_reduce, write_record
    from sparsewire.bench.plot import write_plot
    from sparsewire.bench.progress import ProgressBar
    from sparsewire.bench.table import print_tables

    # Asked to end, the bench ends its processes first, as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    job = request.job(cluster.ranks)
    with ProgressBar(job.cases) as bar:
        results = run_all_reduce(job, cluster, bar.show)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_TABLE_WIDTH)
    console.print(describe(job, cluster), highlight=False)
    print_tables(console, results)
    if json_file:
        write_record(json_file, job, cluster, results)
    if plot:
        write_plot(results, describe(job, cluster), plot)
