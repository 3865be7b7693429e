"""One training to be run: what every rank is told, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Trial:
    """`method` is a name as `Method.parse` takes it.

    `schedule_steps` is the length of the whole training, of which `steps` are run; `warmup` the
    first steps, in which compressed methods send everything. `tokens` is a file with the text of
    the language model, `interface` the network interface that only this rank uses, if any.
    """

    task: str
    method: str
    steps: int
    schedule_steps: int
    warmup: int
    seed: int
    tokens: str
    interface: str | None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trial:
        return cls(**json.loads(text))
