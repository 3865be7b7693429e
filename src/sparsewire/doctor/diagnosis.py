"""The diagnosis of this machine, or of all ranks of a job: facts, the link, choices, findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sparsewire import Communicator, SparseVector
from sparsewire.doctor.choices import Choice, choices
from sparsewire.doctor.findings import Finding, findings
from sparsewire.doctor.machine import Machine, look_at_machine
from sparsewire.link_figures import LinkFigures
from sparsewire.meeting.launcher import join

_RECORD_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Diagnosis:
    """Machines in rank order; without other ranks there is no link."""

    machines: list[Machine]
    link: LinkFigures | None
    choices: list[Choice]
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
            [Choice(**choice) for choice in fields["choices"]],
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
        machines = [Machine.decode(data) for data in _exchange(communicator, own.encode())]
        ranks = communicator.world_size
        link = communicator.link if ranks > 1 else None
        chosen = choices(link, ranks) if link else []
        return communicator.rank, Diagnosis(machines, link, chosen, findings(machines, link))


def _exchange(communicator: Communicator, record: bytes) -> list[bytes]:
    """The records of all ranks, as the bytes of a sparse vector."""
    letters = np.frombuffer(record, np.uint8).astype(np.int32)
    vector = SparseVector(np.arange(len(letters)), letters, _RECORD_BYTES_MAX)
    return [part.values.astype(np.uint8).tobytes() for part in communicator.all_gather(vector)]
