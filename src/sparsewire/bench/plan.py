"""Turns what the user asked for into cases: every size with every pattern and density."""

import itertools
from pathlib import Path

from sparsewire.bench.job import Case
from sparsewire.bench.patterns import Pattern
from sparsewire.errors import ExperimentError

_SMALL_BYTES = 64 * 1024
_SMALL_BURST = 20
_SMALL_ITERATIONS = 400
_BYTES_TO_REDUCE = 1_000_000_000

# Input, expected result, working buffer, and two more while data is made.
_COPIES = 5


def plan_cases(
    patterns: list[Pattern],
    sizes: list[int],
    densities: list[float],
    item_bytes: int,
    iterations: int | None,
    warmup: int | None,
) -> list[Case]:
    """All combinations; iterations and warm-up that are None follow from the size."""
    return [
        _plan(pattern, elements, density, elements * item_bytes, iterations, warmup)
        for pattern, elements, density in itertools.product(patterns, sizes, densities)
    ]


def _plan(
    pattern: Pattern,
    elements: int,
    density: float,
    payload: int,
    iterations: int | None,
    warmup: int | None,
) -> Case:
    small = payload <= _SMALL_BYTES
    by_size = max(10, min(100, _BYTES_TO_REDUCE // payload))
    wanted = iterations or (_SMALL_ITERATIONS if small else by_size)
    burst = min(_SMALL_BURST, wanted) if small else 1
    whole_bursts = -(-wanted // burst) * burst
    return Case(
        pattern=str(pattern),
        elements=elements,
        density=density,
        iterations=whole_bursts,
        warmup=max(2, burst) if warmup is None else warmup,
        burst=burst,
    )


def check_memory(cases: list[Case], item_bytes: int, ranks: int) -> None:
    """Raise ExperimentError where the largest case would not fit into free memory."""
    needed = max(case.elements for case in cases) * item_bytes * ranks * _COPIES
    free = _available_bytes()
    if needed > free:
        raise ExperimentError(
            f"{ranks} ranks need about {needed / 1e9:.1f} GB for this size, {free / 1e9:.1f} GB "
            "are free; use fewer ranks or elements"
        )


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    raise ExperimentError("cannot read the free memory from /proc/meminfo; bench needs Linux")
