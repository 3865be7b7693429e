"""An aggregator's status for people, as tables, and for Prometheus, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.text import Text

from sparsewire.meeting.aggregators.observation import AggregatorStatus, JobStatus
from sparsewire.tools.cli.views.metrics import Metric, samples
from sparsewire.tools.experiment.report import Column, number, table
from sparsewire.tools.measure.sizes import traffic_text

_PREFIX = "sparsewire_aggregator"


TOTALS = (
    Metric("jobs", "Jobs that are served now.", False),
    Metric("workers", "Connections of workers now.", False),
    Metric("jobs_served", "Jobs that have begun."),
    Metric("memory", "Bytes held for jobs now.", False, True),
    Metric("memory_reserved", "Bytes that the jobs of now may come to need.", False, True),
    Metric("bytes_sent", "Bytes sent over connections.", is_bytes=True),
    Metric("bytes_received", "Bytes received over connections.", is_bytes=True),
    Metric("datagrams_sent", "Datagrams sent by this process."),
    Metric("datagrams_received", "Datagrams received by this process."),
    Metric("datagrams_dropped", "Datagrams not sent for want of room on this host."),
    Metric("datagrams_overrun", "Datagrams that came and found the receive buffer full."),
    Metric("datagram_errors", "Errors that the system told of the sockets of datagrams."),
    Metric("datagram_last_error", "The last of them, as errno has it.", False),
    Metric("datagram_buffer", "Bytes of the receive buffer that the system grants.", False, True),
    Metric("datagrams_strange", "Datagrams of no job that is here."),
)
RANKS = Metric("job_ranks", "Ranks of a job.", False)
HERE = Metric("job_ranks_here", "Ranks of a job that are connected.", False)
SLOTS = (
    Metric("contributions", "Contributions taken, each once."),
    Metric("duplicates", "Contributions that had been taken before."),
    Metric("stale", "Contributions to rounds that are over, or not yet begun."),
    Metric("rejected", "Datagrams of a wrong tag, address or form."),
    Metric("results", "Rounds completed."),
    Metric("resent", "Results sent again to one worker."),
    Metric("recalls", "Datagrams that ask for a contribution that is missing."),
    Metric("passed", "Of a rack's aggregator: contributions to the root."),
    Metric("passed_again", "Repeats of contributions to the root."),
)
UPTIME = Metric("uptime_seconds", "Seconds since the aggregator started.", False)


def prometheus_text(status: AggregatorStatus) -> str:
    """All figures in Prometheus' text format, version 0.0.4."""
    return "".join(f"{line}\n" for line in _lines(status))


def _lines(status: AggregatorStatus) -> Iterator[str]:
    yield from samples(_PREFIX, UPTIME, {"": status.seconds})
    for metric in TOTALS:
        if metric.name in status.totals:
            yield from samples(_PREFIX, metric, {"": status.totals[metric.name]})
    yield from samples(_PREFIX, RANKS, {_label(job): job.ranks for job in status.jobs})
    yield from samples(_PREFIX, HERE, {_label(job): job.here for job in status.jobs})
    for metric in SLOTS:
        of_jobs = {_label(job): job.slots.get(metric.name) for job in status.jobs}
        yield from samples(
            _PREFIX, metric, {label: n for label, n in of_jobs.items() if n is not None}
        )


def _label(job: JobStatus) -> str:
    return f'{{job="{job.job}"}}'


def tables(status: AggregatorStatus, before: AggregatorStatus | None = None) -> RenderableType:
    """The totals, and each job; with what was told `before`, what was added a second, too."""
    passed = status.seconds - before.seconds if before else 0.0
    earlier = {job.job: job.slots for job in before.jobs} if before else {}
    totals = _figures(TOTALS, status.totals, before.totals if before else {}, passed)
    jobs = [_job(job, earlier.get(job.job, {}), passed) for job in status.jobs]
    left_out = [Text(f"and {n} more jobs")] if (n := status.jobs_left_out) else []
    return Group(Text(_headline(status), "bold"), totals, Columns(jobs), *left_out)


def _headline(status: AggregatorStatus) -> str:
    by = f" by {status.hook}" if status.hook not in ("", status.transport) else ""
    where = f"{by} at {status.interface}" if status.interface else ""
    return f"aggregator {status.address}, {status.transport}{where}, up {status.seconds:.0f} s"


def _job(job: JobStatus, before: Mapping[str, int], passed: float) -> RenderableType:
    title = f"job {job.job}\n{job.here} of {job.ranks} ranks are connected"
    if not job.slots:
        return Text(f"{title}\nno datagrams")
    return _figures(SLOTS, job.slots, before, passed, title)


def _figures(
    metrics: Iterable[Metric],
    now: Mapping[str, int],
    before: Mapping[str, int],
    passed: float,
    title: str | None = None,
) -> RenderableType:
    rows = []
    for metric in (each for each in metrics if each.name in now):
        has_rate = metric.is_counter and metric.name in before and passed > 0
        rate = (now[metric.name] - before[metric.name]) / passed if has_rate else None
        per_s = "-" if rate is None else f"{_with_unit(metric, rate)}/s"
        rows.append([metric.name.replace("_", " "), _with_unit(metric, now[metric.name]), per_s])
    columns: list[Column[list[str]]] = [
        Column("figure", itemgetter(0), True),
        Column("in all", itemgetter(1)),
        Column("a second", itemgetter(2)),
    ]
    return table(columns, rows, title)


def _with_unit(metric: Metric, value: float) -> str:
    if metric.is_bytes:
        return traffic_text(8 * value)
    return f"{value:,}" if isinstance(value, int) else number(value)
