"""`sparsewire demo`: trains a language model over gloo and over sparsewire, and compares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparsewire.cli.failure import check_link, exit_on_error, require
from sparsewire.experiment.report import ResultFiles

if TYPE_CHECKING:
    from sparsewire.experiment.cluster import Cluster

_DEFAULT_BACKENDS = ["gloo", "sparsewire"]
_DEFAULT_OUTPUT = Path("sparsewire-demo")


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for report.json, loss.png and the workers' logs.")
    ] = _DEFAULT_OUTPUT,
    corpus: Annotated[
        Path | None,
        typer.Option(help="File or folder of text. Default: the source of Python's own library."),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="Backend to train over; repeatable. Default: gloo and sparsewire."),
    ] = None,
    workers: Annotated[int, typer.Option(min=2, max=64, help="Worker processes.")] = 4,
    steps: Annotated[int, typer.Option(min=5, help="Training steps over each backend.")] = 50,
    link: Annotated[
        str, typer.Option(help="Speed of each worker's link in the lab: 1gbit, 10gbit, ...")
    ] = "1gbit",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the model and the negatives.")] = 0,
) -> None:
    """Train a language model over gloo and over sparsewire, and compare.

    The training is an ordinary DistributedDataParallel script; only the backend's name differs.
    As root on Linux, every worker is an emulated host with a link of its own; elsewhere, all
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
        from sparsewire.experiment.progress import bars
        from sparsewire.training.demo import demo_report, run_demo

        cluster = _cluster(workers, check_link(link))
        output.mkdir(parents=True, exist_ok=True)
        files = ResultFiles(output / "report.json", output / "loss.png")
        typer.echo(f"First, {corpus or 'the source of the standard library'} is read.")
        with bars(stay=True) as move:
            found = run_demo(backends, cluster, corpus, steps, seed, output, move)
        demo_report(found).present(files)
        typer.echo(f"Written: {files.json}, {files.plot}")


def _cluster(workers: int, link: str) -> Cluster:
    """The lab; where there can be none, loopback, and say so."""
    from sparsewire.experiment.cluster import Cluster
    from sparsewire.lab import available

    reason = available()
    if reason is None:
        return Cluster(workers, emulated=True, link=link)
    typer.secho(
        f"No emulated network: {reason}.\nAll workers use loopback instead, which is many times "
        "as fast as a network: expect a small speed-up, or none, and equal losses.",
        fg="yellow",
    )
    return Cluster(workers)
