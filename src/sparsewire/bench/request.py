"""What the user asked to have measured, as text, and the job that it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sparsewire._core import ALGORITHMS, DTYPES
from sparsewire.bench.job import Job
from sparsewire.bench.names import backend_name
from sparsewire.bench.patterns import Pattern, numpy_dtype
from sparsewire.bench.plan import check_memory, plan_cases
from sparsewire.errors import ExperimentError
from sparsewire.measure.sizes import parse_density, parse_elements, split_list
from sparsewire.precision import codecs

_OTHERS = ("gloo", "gloo-sparse")


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
    input: str = "dense"
    algorithms: str = "auto"
    precision: str | None = None
    result: str = "auto"
    iterations: int | None = None
    warmup: int | None = None
    lanes: int | None = None
    seed: int = 1
    timeout_s: float = 300.0

    def job(self, ranks: int) -> Job:
        """Read and check everything; ExperimentError says what does not fit."""
        dtype = numpy_dtype(self.dtype)
        if self.op == "avg" and dtype.kind == "i":
            raise ExperimentError(f"an average of {self.dtype} is no {self.dtype}; use --op sum")
        self._check_sparse()
        self._check_precision()
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
        return Job(
            cases=cases,
            backends=self._backends(),
            dtype=self.dtype,
            op=self.op,
            seed=self.seed,
            timeout_s=self.timeout_s,
            lanes=self.lanes,
            input=self.input,
            result=self.result,
            precision=self.precision,
        )

    def _backends(self) -> list[str]:
        others = split_list(self.against) if self.against else []
        for name in others:
            if name not in _OTHERS:
                raise ExperimentError(f"--against {name} is unknown; use {' or '.join(_OTHERS)}")
        if "gloo-sparse" in others and self.input != "sparse":
            raise ExperimentError("gloo-sparse reduces sparse tensors; give --input sparse too")
        algorithms = split_list(self.algorithms)
        for name in algorithms:
            if name not in ALGORITHMS:
                raise ExperimentError(f"algorithm {name!r} is unknown; use {', '.join(ALGORITHMS)}")
        ours = [backend_name(name) for name in algorithms]
        if self.through == "torch":
            ours = []
        by_torch = ["sparsewire-torch"] if self._by_torch else []
        return list(dict.fromkeys(others + ours + by_torch))

    @property
    def _by_torch(self) -> bool:
        return self.through in {"torch", "both"}

    def _check_sparse(self) -> None:
        if self.input == "dense" and (self.algorithms, self.result) != ("auto", "auto"):
            raise ExperimentError(
                "--algorithm and --result are for sparse vectors; use --input sparse"
            )
        if self.input == "sparse" and self.op not in {"sum", "avg"}:
            raise ExperimentError(f"--op {self.op} is not for sparse vectors; use sum or avg")
        if self.through == "torch" and self.algorithms != "auto":
            raise ExperimentError("torch has no --algorithm; use --through both, or numpy")
        if self._by_torch and self.result == "dense":
            raise ExperimentError("torch gets sparse results; leave --result dense away")

    def _check_precision(self) -> None:
        if self.precision is None:
            return
        if self._by_torch:
            raise ExperimentError("--precision is for sparsewire itself; leave --through away")
        names = split_list(self.precision)
        try:
            codecs(names[0] if len(names) == 1 else names, DTYPES[self.dtype], self.op)
        except (TypeError, ValueError) as error:
            raise ExperimentError(str(error)) from None
