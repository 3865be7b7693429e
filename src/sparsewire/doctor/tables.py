"""The diagnosis as tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparsewire.doctor.choices import Chosen
from sparsewire.doctor.diagnosis import Diagnosis
from sparsewire.doctor.findings import bandwidth_mbit
from sparsewire.doctor.machine import Machine
from sparsewire.link_figures import LinkFigures
from sparsewire.measure.sizes import size_text


def print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Print facts first and, last, where eyes end up, what is wrong."""
    console.print(_facts(diagnosis.machines))
    if diagnosis.link:
        console.print(_link(diagnosis.link, len(diagnosis.machines)))
        console.print(_choices(diagnosis.choices))
    for finding in diagnosis.findings:
        mark = Text("wrong: ", "bold red") if finding.serious else Text("note: ", "bold yellow")
        console.print(mark + Text(finding.problem))
        console.print(Text(f"  what to do: {finding.advice}"))
    if not diagnosis.findings:
        console.print(Text("nothing is wrong", "bold green"))


def _facts(machines: list[Machine]) -> Table:
    """One column per group of ranks that say the same."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, machine in enumerate(machines):
        groups.setdefault(tuple(_rows(machine)), []).append(rank)
    table = _table()
    table.add_column("fact", style="bold")
    for ranks in groups.values():
        names = ", ".join(map(str, ranks))
        alone = len(machines) == 1
        table.add_column("this machine" if alone else f"rank {names}", overflow="fold")
    for row in zip(*groups, strict=True):
        table.add_row(row[0][0], *(value for _, value in row))
    return table


def _rows(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "host", machine.host
    yield "sparsewire", machine.version
    yield "SIMD level", machine.simd
    yield "processors", str(machine.processors)
    yield "interface", machine.interface or "-"
    yield "address", machine.address or "-"
    yield "MTU", _or_unknown(machine.mtu, "bytes")
    yield "link speed", _or_unknown(machine.speed_mbit, "Mbit/s")
    yield "TCP congestion control", machine.congestion_control or "unknown"
    yield "torch", machine.torch or "not installed"
    yield "mpi4py", machine.mpi4py or "not installed"
    if machine.lab is not None:
        yield "lab", machine.lab


def _or_unknown(value: int | None, unit: str) -> str:
    return "unknown" if value is None else f"{value} {unit}"


def _table(title: str | None = None) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)


def _link(link: LinkFigures, ranks: int) -> Table:
    table = _table(f"measured among {ranks} ranks")
    table.add_column("figure", style="bold")
    table.add_column("value", justify="right")
    table.add_row("latency of a message", f"{link.latency_s * 1e6:.0f} us")
    table.add_row("bandwidth per rank, all sending", f"{bandwidth_mbit(link):.0f} Mbit/s")
    table.add_row("merging", f"{1e-6 / link.merge_s:.0f} million elements/s")
    table.add_row("the same for SPARSEWIRE_LINK", str(link))
    return table


def _choices(choices: list[Chosen]) -> Table:
    densities = list(dict.fromkeys(choice.density for choice in choices))
    table = _table('what "auto" chooses for sparse float32, and the ms it predicts')
    table.add_column("size", justify="right", style="bold")
    for density in densities:
        table.add_column(f"density {density:g}", overflow="fold")
    for size in dict.fromkeys(choice.bytes for choice in choices):
        of_size = [choice for choice in choices if choice.bytes == size]
        cells = [f"{choice.algorithm}\n{choice.predicted_s * 1e3:.3g}" for choice in of_size]
        table.add_row(size_text(size), *cells)
    return table
