"""The ranks of a machine for people, as tables, and for Prometheus, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sparsewire.meeting.window import NOBODY, Member, ProcessStatus
from sparsewire.status import Sample, rates
from sparsewire.tools.cli.views.live import Frame
from sparsewire.tools.cli.views.metrics import Metric, samples
from sparsewire.tools.experiment.report import Column, number, table

_PREFIX = "sparsewire_rank"

GAUGES = (
    Metric("in_flight", "Operations in flight.", False),
    Metric("seconds", "Seconds that the oldest operation in flight has taken.", False),
)
MEMORY = (
    Metric("queued_bytes", "Bytes that wait to be sent.", False),
    Metric("resident_bytes", "Memory of the process.", False),
)
WAITING = Metric("waits_for", "1 where the oldest operation waits for this peer.", False)
SILENT = Metric("silent_seconds", "Seconds without a sign of life of a silent peer.", False)
ANSWERS = Metric("answers", "0 for a process that is stopped, or keeps Python's lock.", False)
HELP = {
    "operations": "Operations issued.",
    "operations_failed": "Operations that failed.",
    "bytes_sent": "Bytes of frames sent over connections.",
    "bytes_received": "Bytes of frames received over connections.",
    "elements": "Elements of this rank's input.",
    "elements_sent": "Elements of this rank's input that were sent.",
}


@dataclass(frozen=True)
class Row:
    """One communicator of one process; without `status` if the process does not answer.

    `status` is that of `Communicator.status`, `rates` are those since the last look, if any.
    """

    pid: int
    program: str
    communicator: int
    status: dict[str, Any] | None
    rates: dict[str, Any] | None
    silent: Member = NOBODY
    """The known facts of a process that does not answer."""

    @property
    def place(self) -> tuple[int, int]:
        """The rank in this communicator, and how many there are."""
        if self.status is None:
            return self.silent.rank, self.silent.world_size
        return self.status["rank"], self.status["world_size"]

    @property
    def group(self) -> str:
        """A name that only this communicator's ranks share: a program may run more than once."""
        return self.silent.group if self.status is None else self.status["group"]

    @property
    def waits_for(self) -> list[int | str]:
        operations = self.status["operations"] if self.status else []
        return operations[0]["waits_for"] if operations else []


def rows_of(now: Sequence[ProcessStatus], before: Sequence[ProcessStatus] = ()) -> list[Row]:
    """A row for each rank of each communicator, with its rates since it was seen `before`; program
    by program, there group by group in the order in which they were made, there rank by rank.
    """
    earlier = {
        (process.pid, status["number"]): Sample(process.seconds, status["totals"])
        for process in before
        for status in process.communicators
    }
    rows = [row for process in now for row in _rows(process, earlier)]
    first_made = sorted(rows, key=lambda row: (row.communicator, row.pid))
    groups = list(dict.fromkeys(row.group for row in first_made))
    order = {group: number for number, group in enumerate(groups)}
    return sorted(rows, key=lambda row: (row.program, order[row.group], row.place[0], row.pid))


def _rows(process: ProcessStatus, earlier: dict[tuple[int, int], Sample]) -> Iterator[Row]:
    if not process.answers:
        yield Row(process.pid, process.program, 0, None, None, process.first)
    for status in process.communicators:
        former = earlier.get((process.pid, status["number"]))
        sample = Sample(process.seconds, status["totals"])
        since = rates(former, sample) if former else None
        yield Row(process.pid, process.program, status["number"], status, since)


# --- For people ---


def tables(rows: Sequence[Row]) -> Frame:
    """A table for each program with a line for each rank, and who holds up whom."""
    if not rows:
        return Frame(Text("no ranks of this user run here"))
    programs = groupby(sorted(rows, key=_program), _program)
    shown = [_table(program, list(of_program)) for program, of_program in programs]
    return Frame(Group(*shown), Text("\n".join((*unheard(rows), *held_up(rows)))))


def _program(row: Row) -> str:
    return row.program


def _table(program: str, rows: list[Row]) -> RenderableType:
    return table(_COLUMNS, rows, program, lambda row: bool(row.waits_for) or not row.status)


def unheard(rows: Iterable[Row]) -> Iterator[str]:
    """Sentences on processes that do not answer, and on peers of whom ranks hear nothing."""
    silent: dict[str, float] = {}
    for row in rows:
        if row.status is None:
            yield (
                f"{row.program}: rank {row.place[0]} (process {row.pid}) does not answer: it is "
                "stopped, or keeps Python's lock"
            )
            continue
        for peer, seconds in row.status["silent"].items():
            name = f"{row.program}: {_named(peer)}"
            silent[name] = max(seconds, silent.get(name, 0.0))
    yield from (f"{name} gives no sign of life ({s:.0f} s)" for name, s in silent.items())


def held_up(rows: Iterable[Row]) -> Iterator[str]:
    """Sentences such as "train.py: rank 1 holds up rank 0 (3.2 s)"."""
    groups: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row.status:
            groups.setdefault((row.program, row.group), {})[row.status["rank"]] = row
    for (program, _), ranks in groups.items():
        yield from (f"{program}: {sentence}" for sentence in _held_up(ranks))


def _held_up(ranks: dict[int, Row]) -> Iterator[str]:
    held: dict[int | str, list[str]] = {}
    for rank, row in ranks.items():
        for peer in _culprits(rank, ranks):
            seconds = row.status["seconds"] if row.status else 0.0
            held.setdefault(peer, []).append(f"{rank} ({seconds:.1f} s)")
    for peer, waiting in held.items():
        yield f"{_named(peer)} holds up rank{'s' * (len(waiting) > 1)} {', '.join(waiting)}"


def _culprits(rank: int, ranks: dict[int, Row]) -> list[int | str]:
    """Whom a rank waits for in the end: those it waits for may wait themselves."""
    seen: set[int | str] = {rank}
    found: list[int | str] = []
    ahead: list[int | str] = list(ranks[rank].waits_for)
    while ahead:
        peer = ahead.pop(0)
        if peer in seen:
            continue
        seen.add(peer)
        further = ranks[peer].waits_for if isinstance(peer, int) and peer in ranks else []
        ahead += further
        found += [] if further else [peer]
    return found


def _named(peer: int | str) -> str:
    """The name of a peer; in JSON, numbers of ranks are texts."""
    return f"rank {peer}" if str(peer).isdigit() else str(peer)


def _rank(row: Row) -> str:
    rank, world_size = row.place
    return f"{rank}/{world_size}"


def _doing(row: Row) -> str:
    if row.status is None:
        return "does not answer"
    if row.status["failure"]:
        return f"failed: {row.status['failure']}"
    if not row.status["in_flight"]:
        return "-"
    told = f"{row.status['op']} {row.status['seq']}, {row.status['seconds']:.1f} s"
    waits = f", waits for {', '.join(map(str, row.waits_for))}" if row.waits_for else ""
    more = row.status["in_flight"] - 1
    return f"{told}{waits}" + (f", and {more} more" if more else "")


def _rate(name: str, scale: float = 1.0) -> Callable[[Row], str]:
    return lambda row: number(row.rates[name] if row.rates else None, scale)


_COLUMNS: list[Column[Row]] = [
    Column("rank", _rank),
    Column("pid", lambda row: str(row.pid)),
    Column("op/s", _rate("operations_per_s")),
    Column("MB/s out", _rate("bytes_sent_per_s", 1e-6)),
    Column("MB/s in", _rate("bytes_received_per_s", 1e-6)),
    Column("density", _rate("density")),
    Column("doing", _doing, True),
]


# --- For Prometheus ---


def prometheus_text(rows: Sequence[Row]) -> str:
    """All figures in Prometheus' text format, version 0.0.4."""
    return "".join(f"{line}\n" for line in _lines(rows))


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    yield from samples(_PREFIX, ANSWERS, {f'{{pid="{r.pid}"}}': int(bool(r.status)) for r in rows})
    seen = {_labels(row): row.status for row in rows if row.status}
    for metric in GAUGES:
        of_each = {label: status[metric.name] or 0 for label, status in seen.items()}
        yield from samples(_PREFIX, metric, of_each)
    for name, text in HELP.items():
        totals = {label: status["totals"][name] for label, status in seen.items()}
        yield from samples(_PREFIX, Metric(name, text), totals)
    for metric in MEMORY:
        memory = {label: status["memory"][metric.name] for label, status in seen.items()}
        yield from samples(_PREFIX, metric, memory)
    waits = {_labels(row, peer): 1 for row in rows for peer in row.waits_for}
    yield from samples(_PREFIX, WAITING, waits)
    silences = {
        _labels(row, peer): seconds
        for row in rows
        for peer, seconds in (row.status["silent"] if row.status else {}).items()
    }
    yield from samples(_PREFIX, SILENT, silences)


def _labels(row: Row, peer: int | str | None = None) -> str:
    rank = row.status["rank"] if row.status else ""
    told = {"rank": rank, "pid": row.pid, "communicator": row.communicator}
    if peer is not None:
        told["peer"] = peer
    return "{" + ",".join(f'{name}="{value}"' for name, value in told.items()) + "}"
