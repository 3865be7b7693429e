"""What the user asked to have measured, as text, and the job that it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparsewire.bench.errors import BenchError
from sparsewire.bench.job import Job
from sparsewire.bench.patterns import Pattern, numpy_dtype
from sparsewire.bench.plan import check_memory, plan_cases
from sparsewire.bench.sizes import parse_density, parse_elements, split_list


@dataclass(frozen=True)
class Request:
    """The options of the command; lists are still text."""

    sizes: str
    size_unit: Literal["elements", "bytes"] = "elements"
    densities: str = "1"
    patterns: str = "blocks:256"
    dtype: str = "float32"
    op: str = "sum"
    against: str | None = None
    through: str = "numpy"
    iterations: int | None = None
    warmup: int | None = None
    lanes: int | None = None
    seed: int = 1
    timeout_s: float = 300.0

    def job(self, ranks: int) -> Job:
        """Read and check everything; raises BenchError for what makes no sense or does not fit."""
        dtype = numpy_dtype(self.dtype)
        if self.op == "avg" and dtype.kind == "i":
            raise BenchError(f"an average of {self.dtype} is no {self.dtype}; use --op sum")
        cases = plan_cases(
            patterns=[Pattern.parse(text) for text in split_list(self.patterns, "|")],
            sizes=[
                parse_elements(text, dtype.itemsize, unit=self.size_unit)
                for text in split_list(self.sizes)
            ],
            densities=[parse_density(text) for text in split_list(self.densities)],
            item_bytes=dtype.itemsize,
            iterations=self.iterations,
            warmup=self.warmup,
        )
        check_memory(cases, dtype.itemsize, ranks)
        sparsewire = "sparsewire-torch" if self.through == "torch" else "sparsewire"
        return Job(
            cases=cases,
            backends=[sparsewire] if self.against is None else [self.against, sparsewire],
            dtype=self.dtype,
            op=self.op,
            seed=self.seed,
            timeout_s=self.timeout_s,
            lanes=self.lanes,
        )
