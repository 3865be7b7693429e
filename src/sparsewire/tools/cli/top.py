"""`sparsewire top`: what the ranks of this machine do, once or again and again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sparsewire.tools.cli.failure import exit_on_error
from sparsewire.tools.cli.views.live import Pause, show_live, wait

if TYPE_CHECKING:
    from sparsewire.meeting.window import ProcessStatus
    from sparsewire.tools.cli.views.top_views import Row


@click.command()
@click.option("--once", is_flag=True, help="Look for one interval, print, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as lines of JSON.")
@click.option(
    "--prometheus",
    is_flag=True,
    help="Print metrics in Prometheus' text format 0.0.4, once.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    help="Seconds between two looks.",
)
def top(once: bool, as_json: bool, prometheus: bool, interval: float) -> None:
    """Show what the ranks of this machine do: rates, density, and who waits for whom.

    It looks again and again, until Ctrl-C or the key q.

    Ranks of the same user, in this network namespace; root sees those of all users. For other
    machines: ssh HOST sparsewire top --once. SPARSEWIRE_TOP=0 hides a process.

    Exit status: 1 where --once or --prometheus find no rank.
    """
    with exit_on_error():
        if prometheus and (as_json or once):
            raise ValueError("--prometheus prints metrics once: leave --json and --once away")
        if prometheus:
            _print_metrics()
        elif as_json:
            for rows in _looks(interval, again=not once):
                click.echo(json.dumps([asdict(row) for row in rows]))
        elif once:
            _print_once(interval)
        else:
            _show_live(interval)


def _print_metrics() -> None:
    from sparsewire.tools.cli.views.top_views import prometheus_text, rows_of

    click.echo(prometheus_text(_some(rows_of(_look()))), nl=False)


def _print_once(interval: float) -> None:
    from sparsewire.tools.cli.views.top_views import tables
    from sparsewire.tools.experiment.report import report_console

    for rows in _looks(interval, again=False):
        report_console().print(tables(rows))


def _show_live(interval: float) -> None:
    from sparsewire.tools.cli.views.top_views import tables

    show_live(lambda pause: map(tables, _looks(interval, again=True, pause=pause)))


def _looks(interval: float, *, again: bool, pause: Pause = wait) -> Iterator[list[Row]]:
    """Yields the rows with rates: of one look, or of one after every interval until Ctrl-C."""
    from sparsewire.tools.cli.views.top_views import rows_of

    with contextlib.suppress(KeyboardInterrupt):
        before = _look()
        if not again:
            _some(before)
        while not pause(interval):
            now = _look()
            yield rows_of(now, before)
            before = now
            if not again:
                return


def _look() -> list[ProcessStatus]:
    from sparsewire.meeting.window import look

    return look()


def _some(seen: list) -> list:  # type: ignore[type-arg]
    """The list itself; raises ValueError if it is empty."""
    if not seen:
        raise ValueError(
            "no ranks of this user run here: start some, or look at their host, or in their "
            "container or network namespace"
        )
    return seen
