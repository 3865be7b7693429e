"""`sparsewire aggregator status`: what an aggregator does, once or again and again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparsewire.tools.cli import options
from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.cli.secret import read_secret
from sparsewire.tools.cli.views.live import Frame, Pause, show_live, wait

if TYPE_CHECKING:
    from sparsewire.meeting.aggregators.observation import AggregatorStatus

_INTERVAL_S = 1.0

Ask = Callable[[], "AggregatorStatus"]


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--json", "as_json", is_flag=True, help="Print everything as a line of JSON.")
@click.option("--prometheus", is_flag=True, help="Print metrics in Prometheus' text format 0.0.4.")
@click.option(
    "--watch",
    is_flag=True,
    help="Ask again every second, until Ctrl-C or the key q; also as lines of JSON.",
)
@options.secret_file("File with the aggregator's secret, instead of SPARSEWIRE_SECRET.")
def status(
    address: str, as_json: bool, prometheus: bool, watch: bool, secret_file: Path | None
) -> None:
    """Show what an aggregator does: its jobs, their workers, memory, bytes and datagrams.

    HOST:PORT is the aggregator, as SPARSEWIRE_AGGREGATORS names it.

    An aggregator with a secret tells those only who know it; one without tells whoever asks.
    Round trips and windows are known to the workers alone: `comm.stats()` there has them.

    Exit status: 1 where no aggregator answers.
    """
    with exit_on_error():
        if prometheus and (as_json or watch):
            raise ValueError("--prometheus prints metrics once: leave --json and --watch away")
        ask = _asking(address, secret_file)
        if as_json:
            for told in _told(ask, again=watch):
                click.echo(json.dumps(asdict(told)))
        elif watch:
            _show_live(ask)
        else:
            _print_once(ask(), prometheus)


def _asking(address: str, secret_file: Path | None) -> Ask:
    from sparsewire.meeting.aggregators import observation
    from sparsewire.options import parse_address

    at, secret = parse_address(address), read_secret(secret_file)
    return lambda: observation.ask(at, secret)


def _print_once(told: AggregatorStatus, prometheus: bool) -> None:
    from sparsewire.tools.cli.views.status_views import prometheus_text, tables
    from sparsewire.tools.experiment.report import report_console

    if prometheus:
        click.echo(prometheus_text(told), nl=False)
    else:
        report_console().print(tables(told))


def _show_live(ask: Ask) -> None:
    show_live(lambda pause: _frames(_told(ask, again=True, pause=pause)))


def _frames(statuses: Iterable[AggregatorStatus]) -> Iterator[Frame]:
    from sparsewire.tools.cli.views.status_views import tables

    before = None
    for told in statuses:
        yield Frame(tables(told, before))
        before = told


def _told(ask: Ask, *, again: bool, pause: Pause = wait) -> Iterator[AggregatorStatus]:
    """Yields one status, or one a second until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        yield ask()
        while again and not pause(_INTERVAL_S):
            yield ask()
