"""`sparsewire demo`: trains a language model over gloo and over sparsewire, and compares."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparsewire.cli.link import check_link
from sparsewire.experiment.signals import ending_on

if TYPE_CHECKING:
    from rich.console import Console

    from sparsewire.demo.comparison import Plan

_DEFAULT_BACKENDS = ["gloo", "sparsewire"]
_DEFAULT_OUTPUT = Path("sparsewire-demo")
_VOCABULARY = 50_000


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
    from rich.console import Console

    from sparsewire.demo.comparison import Plan
    from sparsewire.errors import Error

    console = Console(highlight=False)
    try:
        _require_torch()
        backends = backend or _DEFAULT_BACKENDS
        speed = _usable_link(console, link)
        with ending_on(signal.SIGTERM):
            _run(console, Plan(backends, workers, steps, seed, speed, output), corpus)
    except Error as error:
        console.print(f"sparsewire demo: {error}", markup=False, style="bold red", soft_wrap=True)
        raise typer.Exit(1) from None


def _require_torch() -> None:
    if find_spec("torch") is None:
        from sparsewire.errors import ExperimentError

        raise ExperimentError('PyTorch is missing: pip install "sparsewire[torch]"')


def _usable_link(console: Console, link: str) -> str | None:
    """Return the link's speed, or None, and say so, where there can be no lab."""
    from sparsewire.lab import available

    check_link(link)
    reason = available()
    if reason is None:
        return link
    console.print(
        f"No emulated network: {reason}.\nAll workers use loopback instead, which is many times "
        "as fast as a network: expect a small speed-up, or none, and equal losses.",
        markup=False,
        soft_wrap=True,
        style="yellow",
    )
    return None


def _run(console: Console, plan: Plan, corpus: Path | None) -> None:
    from sparsewire.demo.comparison import compare
    from sparsewire.demo.corpus import read_corpus
    from sparsewire.demo.plot import save_plot
    from sparsewire.demo.screen import following
    from sparsewire.demo.table import densities, findings, verdict

    with console.status("reading the corpus"):
        text = read_corpus(corpus, _VOCABULARY, plan.workers)
    console.print(
        f"Corpus: {text.source}, {text.files} files, {len(text.tokens):,} tokens, "
        f"{text.vocabulary:,} different ones.",
        markup=False,
        soft_wrap=True,
    )
    with following(console, plan.backends, plan.steps) as follow:
        report = compare(plan, text, follow)
    report.save(plan.output / "report.json")
    save_plot(report, plan.output / "loss.png")
    console.print(findings(report))
    console.print(densities(report))
    if len(report.runs) > 1:
        console.print(verdict(report), style="bold")
    console.print(f"Written: {plan.output}/report.json, {plan.output}/loss.png", markup=False)
