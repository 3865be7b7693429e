"""The diagnosis as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparsewire.options import LinkFigures
from sparsewire.tools.doctor.diagnosis import Chosen, Diagnosis
from sparsewire.tools.doctor.findings import bandwidth_mbit
from sparsewire.tools.doctor.gpu import PathChosen
from sparsewire.tools.doctor.machine import Machine
from sparsewire.tools.experiment.report import Column, table
from sparsewire.tools.measure.sizes import size_text

_AMONG_RANKS = """\
nothing was measured: there is one rank. Between two here, or among the ranks of a launcher:
  sparsewire doctor --workers 2
  torchrun --standalone --no-python --nproc-per-node 2 sparsewire doctor
"""


def print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    """Print facts first and, last, where eyes end up, what is wrong."""
    console.print(_facts(diagnosis.machines))
    if diagnosis.link:
        console.print(_link(diagnosis.link, len(diagnosis.machines)))
        console.print(_choices(diagnosis.choices))
    else:
        console.print(Text(_AMONG_RANKS))
    if diagnosis.lanes:
        console.print(Text(f"lanes: {diagnosis.lanes.number} ({diagnosis.lanes.why})"))
    if diagnosis.paths:
        console.print(_paths(diagnosis.paths))
    for finding in diagnosis.findings:
        mark = Text("wrong: ", "bold red") if finding.serious else Text("note: ", "bold yellow")
        console.print(mark + Text(finding.problem))
        console.print(Text(f"  what to do: {finding.advice}"))
    if not diagnosis.findings:
        console.print(Text("nothing is wrong", "bold green"))


def _facts(machines: list[Machine]) -> Table:
    """A table with a column for each group of ranks with equal facts."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, machine in enumerate(machines):
        groups.setdefault(tuple(_rows(machine)), []).append(rank)
    heads = [f"rank {', '.join(map(str, ranks))}" for ranks in groups.values()]
    return _texts(
        ["fact", *(heads if len(machines) > 1 else ["this machine"])],
        [[row[0][0], *(value for _, value in row)] for row in zip(*groups, strict=True)],
    )


def _rows(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "host", machine.host
    yield "sparsewire", machine.version
    yield "SIMD level", machine.simd
    yield "processors", str(machine.processors)
    yield "interface", machine.interface or "-"
    yield "address", machine.address or "-"
    yield "MTU", _or_unknown(machine.mtu, "bytes")
    yield "link speed", _or_unknown(machine.speed_mbit, "Mbit/s")
    yield "TCP congestion control", machine.congestion_control
    yield "torch", machine.torch or "not installed"
    yield "GPU", _gpu(machine)
    yield "mpi4py", machine.mpi4py or "not installed"
    if machine.lab is not None:
        yield "lab", machine.lab


def _gpu(machine: Machine) -> str:
    if not (machine.gpu and machine.gpu_down_s and machine.gpu_up_s):
        return "none that torch reaches"
    down, up = (1e-9 / seconds for seconds in (machine.gpu_down_s, machine.gpu_up_s))
    return f"{machine.gpu}: {down:.1f} GB/s to pinned memory, {up:.1f} back"


def _or_unknown(value: int | None, unit: str) -> str:
    return "unknown" if value is None else f"{value} {unit}"


def _link(link: LinkFigures, ranks: int) -> Table:
    figures = [
        ["latency of a message", f"{link.latency_s * 1e6:.0f} us"],
        ["bandwidth per rank, all sending", f"{bandwidth_mbit(link):.0f} Mbit/s"],
        ["merging", f"{1e-6 / link.merge_s:.0f} million elements/s"],
        ["the same for SPARSEWIRE_LINK", str(link)],
    ]
    return _texts(["figure", "value"], figures, f"measured among {ranks} ranks")


def _choices(choices: list[Chosen]) -> Table:
    rows: dict[int, list[str]] = {}
    for choice in choices:
        cells = rows.setdefault(choice.bytes, [size_text(choice.bytes)])
        cells.append(f"{choice.algorithm}\n{choice.predicted_s * 1e3:.3g}")
    densities = dict.fromkeys(f"density {choice.density:g}" for choice in choices)
    title = 'what "auto" chooses for sparse float32, and the ms it predicts'
    return _texts(["size", *densities], rows.values(), title)


def _paths(paths: list[PathChosen]) -> Table:
    rows = [
        [f"{each.density:g}", each.path, f"{each.packed_s * 1e3:.3g}", f"{each.dense_s * 1e3:.3g}"]
        for each in paths
    ]
    title = (
        f"how the engine takes float32 of {size_text(paths[0].bytes)} from GPUs, by the share of "
        "blocks that are not zero, and the ms it predicts; groups measure NCCL themselves"
    )
    return _texts(["density", "path", "packed", "dense"], rows, title)


def _texts(heads: list[str], rows: Iterable[list[str]], title: str | None = None) -> Table:
    columns = [Column(head, itemgetter(at), True) for at, head in enumerate(heads)]
    return table(columns, rows, title)
