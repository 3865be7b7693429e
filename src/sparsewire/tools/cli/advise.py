"""`sparsewire advise`: predicts from a recorded profile what would make a training faster."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import exit_on_error


@click.command()
@click.argument("directory", metavar="DIR", type=options.FILE)
@click.option(
    "--link",
    multiple=True,
    help="Speed of a host's link, each way, like 10gbit; several times for several. "
    "Default: the recorded one, or 1gbit, 10gbit and 100gbit.",
)
@click.option(
    "--hosts",
    type=options.COUNT,
    help="Hosts. Default: as many as the recorded ranks need, --ranks on each.",
)
@click.option("--ranks", type=options.COUNT, default=1, help="Ranks on each of them.")
@click.option(
    "--cores",
    type=options.COUNT,
    help="Processors that all ranks of all hosts share, as in the lab, to compute and to send. "
    "Default: each rank has its own.",
)
@click.option(
    "--report",
    type=options.FILE,
    help="Write everything, with plots, into this HTML file, which needs no network.",
)
@options.as_json
def advise(
    directory: Path,
    link: tuple[str, ...],
    hosts: int | None,
    ranks: int,
    cores: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Predict a training's steps over gloo or NCCL and over sparsewire, and say what to change.

    DIR is what `sparsewire profile` recorded: rank-0.json and so on. The command takes the recorded
    gradients and backward passes to any network, and predicts exact sums, tables with sparse=True
    over gloo and over sparsewire, error feedback and DIANA, each with a range. It says so where
    nothing pays, and where that cannot be told.

    Example: sparsewire advise sparsewire-profile --link 10gbit --hosts 8 --report report.html
    """
    with exit_on_error():
        from sparsewire.profile.records.recorded import load
        from sparsewire.tools.advise.answer import answer
        from sparsewire.tools.advise.asked import asked_links, asked_network
        from sparsewire.tools.advise.report.page import write_page
        from sparsewire.tools.advise.report.printed import as_json as plain_data
        from sparsewire.tools.advise.report.printed import printed
        from sparsewire.tools.experiment.report import report_console

        recorded = load(directory)
        network = asked_network(recorded, hosts, ranks, cores)
        found = answer(recorded, network, asked_links(recorded, list(link)))
        if report is not None:
            write_page(found, report)
        if as_json:
            click.echo(json.dumps(plain_data(found), indent=1))
            return
        console = report_console()
        for part in printed(found):
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
