"""A measurement: the options of the command, and the job that they mean for workers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sparsewire._core import ALGORITHMS, DTYPES
from sparsewire.collectives.views import codecs
from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.fixed_point import TYPES
from sparsewire.tools.bench.patterns import Pattern, numpy_dtype
from sparsewire.tools.bench.traced import traces_in
from sparsewire.tools.measure.conditions import proc_entry
from sparsewire.tools.measure.sizes import parse_density, parse_elements, split_list

DEFAULT_SIZE = "25e6"

_SMALL_BYTES = 64 * 1024
_SMALL_BURST = 20
_SMALL_ITERATIONS = 400
_BYTES_TO_REDUCE = 1_000_000_000

# Input, expected result, and two more while data is made; beside the buffers of a burst.
_COPIES = 4

OTHERS = ("gloo", "gloo-sparse")
"""The backends beside sparsewire: gloo's dense all_reduce, and its own of sparse tensors."""

_OURS = "sparsewire"
_THROUGH_TORCH = "sparsewire-torch"
_WORDS = {
    "gloo": "gloo (dense)",
    "gloo-sparse": "gloo (sparse tensors)",
    _THROUGH_TORCH: "sparsewire through torch",
}


def backend_name(algorithm: str) -> str:
    """The name of sparsewire's all_reduce with an algorithm; that of "auto" is plain."""
    return _OURS if algorithm == "auto" else f"{_OURS}/{algorithm}"


def algorithm_of(backend: str) -> str | None:
    """The algorithm that such a name means, or None for other backends."""
    if backend == _OURS:
        return "auto"
    ours, _, algorithm = backend.partition("/")
    return algorithm if ours == _OURS and algorithm else None


def needs_torch(backend: str) -> bool:
    """Whether such a backend is one of torch.distributed; NumPy is enough for the others."""
    return backend in (*OTHERS, _THROUGH_TORCH)


def in_words(backend: str) -> str:
    """What legends call it."""
    return _WORDS.get(backend) or backend.replace("/", ", ")


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
    """The settings of all cases; the help of the command explains each."""

    dtype: str = "float32"
    op: str = "sum"
    input: str = "dense"
    result: str = "auto"
    precision: str | None = None
    lanes: int | None = None
    arithmetic: str | None = None
    trace: str | None = None
    seed: int = 1
    timeout: float = 300.0

    @property
    def in_fixed_point(self) -> bool:
        """Whether sums are of values that are rounded first; whole numbers need no rounding."""
        return self.arithmetic == "fixed" and self.dtype in TYPES


@dataclass(frozen=True, kw_only=True)
class Job(Settings):
    """Everything a worker needs besides its rank, which the environment tells."""

    cases: list[Case]
    backends: list[str]
    case_s: float | None = None
    """Seconds after which a case may end before all its iterations; slow backends end sooner."""

    def __str__(self) -> str:
        through = " through torch.distributed" if _THROUGH_TORCH in self.backends else ""
        kind = f"sparse {self.dtype}" if self.input == "sparse" else self.dtype
        how = f" sent as {self.precision}" if self.precision else ""
        how += " in fixed point" if self.in_fixed_point else ""
        return f"all_reduce {self.op} of {kind}{how}{through}"

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**{**fields, "cases": [Case(**case) for case in fields["cases"]]})


@dataclass
class Sample:
    """One rank's measurements of one backend in one case."""

    seconds: list[float] = field(default_factory=list)
    user_cpu_s: float = 0.0
    system_cpu_s: float = 0.0
    counted_bytes_sent: int | None = None
    interface_bytes_sent: int = 0
    prediction: dict[str, Any] = field(default_factory=dict)
    """For sparse input: the last fields of `Measurement`."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Settings):
    """The options of the command, by their names there; lists are still text."""

    elements: str | None = None
    bytes: str | None = None
    density: str = "1"
    pattern: str = "blocks:256"
    algorithm: str = "auto"
    against: str | None = None
    through: str = "numpy"
    iterations: int | None = None
    warmup: int | None = None
    burst: int | None = None

    def job(self, ranks: int, case_s: float | None = None) -> Job:
        """Read and check everything; ExperimentError says what does not fit."""
        if self.trace is not None and (own := traces_in(self.trace).dtype) not in (
            None,
            self.dtype,
        ):
            return replace(self, dtype=own).job(ranks, case_s)
        dtype = numpy_dtype(self.dtype)
        if self.op == "avg" and dtype.kind == "i":
            raise ExperimentError(f"an average of {self.dtype} is no {self.dtype}; use --op sum")
        self._check_sparse()
        self._check_precision()
        self._check_arithmetic()
        make = self._cases if self.trace is None else self._traced_cases
        cases = list(make(dtype.itemsize))
        _check_memory(max(map(_buffered, cases)) * dtype.itemsize, ranks)
        settings = {field.name: getattr(self, field.name) for field in fields(Settings)}
        return Job(cases=cases, backends=self._backends(), case_s=case_s, **settings)

    def _cases(self, item_bytes: int) -> Iterator[Case]:
        """Every size with every pattern and density."""
        if self.elements and self.bytes:
            raise ExperimentError("give --elements or --bytes, not both")
        unit, sizes = ("bytes", self.bytes) if self.bytes else ("elements", self.elements)
        lists = itertools.product(
            split_list(self.pattern, "|"),
            [parse_elements(t, item_bytes, unit=unit) for t in split_list(sizes or DEFAULT_SIZE)],
            [parse_density(text) for text in split_list(self.density)],
        )
        for pattern, elements, density in lists:
            # Each rank reads it again, but a mistake should be told before they start.
            Pattern.parse(pattern)
            iterations, warmup, burst = self._calls(elements * item_bytes)
            yield Case(pattern, elements, density, iterations, warmup, burst)

    def _traced_cases(self, item_bytes: int) -> Iterator[Case]:
        """Every bucket of every step that was recorded."""
        if self.elements or self.bytes:
            raise ExperimentError("a trace has its own sizes: leave --elements and --bytes away")
        assert self.trace is not None
        for name, elements, density in traces_in(self.trace).cases():
            yield Case(name, elements, density, *self._calls(elements * item_bytes))

    def _calls(self, payload: int) -> tuple[int, int, int]:
        """Measured calls, calls before them, and calls in a burst, for buffers of so many bytes."""
        is_small = payload <= _SMALL_BYTES
        by_size = max(10, min(100, _BYTES_TO_REDUCE // payload))
        wanted = self.iterations or (_SMALL_ITERATIONS if is_small else by_size)
        burst = min(self.burst or (_SMALL_BURST if is_small else 1), wanted)
        warmup = max(2, burst) if self.warmup is None else self.warmup
        return -(-wanted // burst) * burst, warmup, burst

    def _backends(self) -> list[str]:
        others = split_list(self.against) if self.against else []
        for name in others:
            if name not in OTHERS:
                raise ExperimentError(f"--against {name} is unknown; use {' or '.join(OTHERS)}")
        if "gloo-sparse" in others and self.input != "sparse":
            raise ExperimentError("gloo-sparse reduces sparse tensors; give --input sparse too")
        algorithms = split_list(self.algorithm)
        for name in algorithms:
            if name not in ALGORITHMS:
                raise ExperimentError(f"algorithm {name!r} is unknown; use {', '.join(ALGORITHMS)}")
        ours = [] if self.through == "torch" else [backend_name(name) for name in algorithms]
        by_torch = [] if self.through == "numpy" else [_THROUGH_TORCH]
        return list(dict.fromkeys(others + ours + by_torch))

    def _check_sparse(self) -> None:
        if self.input == "dense" and (self.algorithm, self.result) != ("auto", "auto"):
            raise ExperimentError(
                "--algorithm and --result are for sparse vectors; use --input sparse"
            )
        if self.input == "sparse" and self.op not in {"sum", "avg"}:
            raise ExperimentError(f"--op {self.op} is not for sparse vectors; use sum or avg")
        if self.through == "torch" and self.algorithm != "auto":
            raise ExperimentError("torch has no --algorithm; use --through both, or numpy")
        if self.through != "numpy" and self.result == "dense":
            raise ExperimentError("torch gets sparse results; leave --result dense away")

    def _check_precision(self) -> None:
        if self.precision is None:
            return
        if self.through != "numpy":
            raise ExperimentError("--precision is for sparsewire itself; leave --through away")
        names = split_list(self.precision)
        try:
            codecs(names[0] if len(names) == 1 else names, DTYPES[self.dtype], self.op)
        except (TypeError, ValueError) as error:
            raise ExperimentError(str(error)) from None

    def _check_arithmetic(self) -> None:
        if self.arithmetic != "fixed":
            return
        if self.dtype not in {*TYPES, "int32"} or self.op not in {"sum", "avg"}:
            raise ExperimentError(
                f"--arithmetic fixed is for sums and averages of {', '.join(TYPES)} and int32, "
                f"not for {self.op} of {self.dtype}"
            )
        if self.input == "sparse" or self.precision:
            raise ExperimentError(
                "--arithmetic fixed is for dense input; leave --input and --precision away"
            )


def _buffered(case: Case) -> int:
    """Elements that a rank has in memory."""
    return case.elements * (_COPIES + case.burst)


def _check_memory(buffered: int, ranks: int) -> None:
    """Raise ExperimentError where so large buffers would not fit into this machine's memory."""
    available = proc_entry("meminfo", "MemAvailable")
    if available is None:
        raise ExperimentError("cannot read the free memory from /proc/meminfo; bench needs Linux")
    needed, free = buffered * ranks, int(available.split()[0]) * 1024
    if needed > free:
        raise ExperimentError(
            f"{ranks} ranks need about {needed / 1e9:.1f} GB for this size, {free / 1e9:.1f} GB "
            "are free; use fewer ranks or elements, or a shorter --burst"
        )
