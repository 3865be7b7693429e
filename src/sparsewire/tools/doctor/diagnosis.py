"""The diagnosis of this machine, or of all ranks of a job: facts, the link, choices, findings.

`python -m sparsewire.tools.doctor.diagnosis` is one local rank: rank 0 prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparsewire.compress.message import framed, unframed
from sparsewire.errors import Error
from sparsewire.meeting.connect import join
from sparsewire.meeting.network.lanes import Lanes, lanes_of
from sparsewire.meeting.network.resources import Resources
from sparsewire.options import LinkFigures
from sparsewire.tools.doctor.findings import Finding, findings
from sparsewire.tools.doctor.gpu import PathChosen, paths
from sparsewire.tools.doctor.machine import Machine, look_at_machine
from sparsewire.tools.experiment.crew import Event, run_on_loopback
from sparsewire.tools.measure.prediction import predict

SIZES = (64 << 10, 1 << 20, 16 << 20, 100_000_000)
"""Bytes of the vector as a dense one."""

DENSITIES = (0.0001, 0.01, 0.1, 0.5)
_ITEM_BYTES = 4


@dataclass(frozen=True)
class Chosen:
    """The engine's choice for float32 vectors of `bytes`; each rank names `density` of one."""

    bytes: int
    density: float
    algorithm: str
    predicted_s: float


@dataclass(frozen=True)
class Diagnosis:
    """Machines in rank order; without other ranks there is no link, without GPUs no paths."""

    machines: list[Machine]
    link: LinkFigures | None
    choices: list[Chosen]
    paths: list[PathChosen]
    lanes: Lanes | None
    findings: list[Finding]

    @classmethod
    def of(cls, machines: list[Machine], link: LinkFigures | None) -> Diagnosis:
        """The diagnosis from the facts and the measured link."""
        chosen = choices(link, len(machines)) if link else []
        paths = _paths(machines, link)
        return cls(machines, link, chosen, paths, lanes(machines), findings(machines, link))

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Diagnosis:
        """The diagnosis of which these are the fields in JSON."""
        link = fields["link"] and LinkFigures(**fields["link"])
        return cls.of([_machine(machine) for machine in fields["machines"]], link)

    def to_json(self, indent: int | None = None) -> str:
        link = self.link and self.link._asdict()
        return json.dumps({**asdict(self), "link": link}, indent=indent)


def _paths(machines: list[Machine], link: LinkFigures | None) -> list[PathChosen]:
    """The paths of tensors on GPUs, if every rank has one."""
    copies = [
        (machine.gpu_down_s, machine.gpu_up_s)
        for machine in machines
        if machine.gpu_down_s is not None and machine.gpu_up_s is not None
    ]
    return paths(copies, link) if link and len(copies) == len(machines) else []


def lanes(machines: list[Machine]) -> Lanes | None:
    """The lanes that these ranks take; None if some would not come so far."""
    if asked := [machine.lanes for machine in machines if machine.lanes]:
        return Lanes(min(asked), "as SPARSEWIRE_LANES says")
    resources = [machine.resources for machine in machines if machine.resources]
    return lanes_of(resources) if len(resources) == len(machines) else None


def _machine(fields: dict[str, Any]) -> Machine:
    """The machine with these fields from JSON."""
    resources = fields["resources"] and Resources(*fields["resources"])
    return Machine(**{**fields, "resources": resources})


def choices(link: LinkFigures, ranks: int) -> list[Chosen]:
    """The engine's choices on a link: every size with every density."""
    return [_choose(link, ranks, size, density) for size in SIZES for density in DENSITIES]


def _choose(link: LinkFigures, ranks: int, size: int, density: float) -> Chosen:
    length = size // _ITEM_BYTES
    elements = [max(1, round(length * density))] * ranks
    prediction = predict(link, "auto", length, _ITEM_BYTES, elements)
    return Chosen(size, density, prediction.chosen, prediction.seconds)


def of_machine(environment: Mapping[str, str]) -> Diagnosis:
    """This machine alone."""
    return Diagnosis.of([look_at_machine(environment, try_lab=True)], None)


def of_ranks(environment: Mapping[str, str]) -> tuple[int, Diagnosis]:
    """This rank's number, and the diagnosis of all ranks of the launcher; collective.

    Raises as `sparsewire.init` does, where the ranks cannot connect.
    """
    own = look_at_machine(environment, try_lab=False)
    with join() as communicator:
        told = communicator.all_gather(framed(json.dumps(asdict(own)).encode()))
        records = [json.loads(unframed(each.indices, each.values)) for each in told]
        link = communicator.link if communicator.world_size > 1 else None
        return communicator.rank, Diagnosis.of([_machine(record) for record in records], link)


def of_local_ranks(workers: int) -> Diagnosis:
    """Start so many ranks here, on loopback; raises WorkerFailed where one fails."""
    said: list[Event] = []
    run_on_loopback(__name__, ranks=workers, on_event=said.append)
    return Diagnosis.from_fields(said[0])


if __name__ == "__main__":
    try:
        rank, diagnosis = of_ranks(os.environ)
    except (Error, ValueError) as error:
        sys.exit(f"error: {error}")
    if rank == 0:
        print(diagnosis.to_json(), flush=True)
