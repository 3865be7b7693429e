"""What the bench process and its workers tell each other, as JSON: a job in, events out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One point to measure: a size, a pattern and a density."""

    pattern: str
    elements: int
    density: float
    iterations: int
    warmup: int
    burst: int
    """Calls between two barriers: 1 for large buffers, more where a barrier would dominate."""

    def __str__(self) -> str:
        return f"{self.pattern}, {self.elements:,} elements, density {self.density:g}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all cases."""

    dtype: str = "float32"
    op: str = "sum"
    input: str = "dense"
    """"dense", or "sparse": a SparseVector of the non-zeros, which were found before."""
    result: str = "auto"
    """Of sparse input: "sparse", "dense", or "auto" by density."""
    precision: str | None = None
    """On the wire; two names with a comma for the two phases."""
    lanes: int | None = None
    seed: int = 1
    timeout: float = 300.0
    """Seconds that one call may take."""


@dataclass(frozen=True, kw_only=True)
class Job(Settings):
    """Everything a worker needs besides its rank, which the environment tells."""

    cases: list[Case]
    backends: list[str]
    case_s: float | None = None
    """Seconds after which a case may end before all its iterations; slow backends end sooner."""

    def __str__(self) -> str:
        through = " through torch.distributed" if "sparsewire-torch" in self.backends else ""
        kind = f"sparse {self.dtype}" if self.input == "sparse" else self.dtype
        precision = f" sent as {self.precision}" if self.precision else ""
        return f"all_reduce {self.op} of {kind}{precision}{through}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**{**fields, "cases": [Case(**case) for case in fields["cases"]]})


@dataclass
class Sample:
    """What one rank measured of one backend in one case."""

    seconds: list[float] = field(default_factory=list)
    user_cpu_s: float = 0.0
    system_cpu_s: float = 0.0
    counted_bytes_sent: int | None = None
    interface_bytes_sent: int = 0
    prediction: dict[str, Any] = field(default_factory=dict)
    """Of sparse input: the last fields of `Measurement`."""
