"""The diagnosis of this machine, or of all ranks of a job: facts, the link, choices, findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparsewire.compress.framing import framed, unframed
from sparsewire.doctor.choices import Chosen, choices
from sparsewire.doctor.findings import Finding, findings
from sparsewire.doctor.machine import Machine, look_at_machine
from sparsewire.experiment.events import Event
from sparsewire.experiment.launch import run_on_loopback
from sparsewire.meeting.connect import join
from sparsewire.options import LinkFigures


@dataclass(frozen=True)
class Diagnosis:
    """Machines in rank order; without other ranks there is no link."""

    machines: list[Machine]
    link: LinkFigures | None
    choices: list[Chosen]
    findings: list[Finding]

    def to_json(self, indent: int | None = None) -> str:
        fields = asdict(self)
        fields["link"] = None if self.link is None else self.link._asdict()
        return json.dumps(fields, indent=indent)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Diagnosis:
        link = fields["link"]
        return cls(
            [Machine(**machine) for machine in fields["machines"]],
            None if link is None else LinkFigures(**link),
            [Chosen(**choice) for choice in fields["choices"]],
            [Finding(**finding) for finding in fields["findings"]],
        )


def of_machine(environment: Mapping[str, str]) -> Diagnosis:
    """This machine alone."""
    machine = look_at_machine(environment, try_lab=True)
    return Diagnosis([machine], None, [], findings([machine], None))


def of_ranks(environment: Mapping[str, str]) -> tuple[int, Diagnosis]:
    """This rank's number, and the diagnosis of all ranks of the launcher; collective.

    Raises as `sparsewire.init` does, where the ranks cannot connect.
    """
    own = look_at_machine(environment, try_lab=False)
    with join() as communicator:
        told = communicator.all_gather(framed(json.dumps(asdict(own)).encode()))
        records = [json.loads(unframed(each.indices, each.values)) for each in told]
        machines = [Machine(**record) for record in records]
        ranks = communicator.world_size
        link = communicator.link if ranks > 1 else None
        chosen = choices(link, ranks) if link else []
        return communicator.rank, Diagnosis(machines, link, chosen, findings(machines, link))


def of_local_ranks(workers: int) -> Diagnosis:
    """Start so many ranks here, on loopback; raises WorkerFailed where one fails."""
    said: list[Event] = []
    run_on_loopback("sparsewire.doctor.worker", ranks=workers, on_event=said.append)
    return Diagnosis.from_fields(said[0])
