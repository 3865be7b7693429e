"""How well "auto" chooses: over a grid of sizes and densities, beside every fixed algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsewire.bench.job import Job
from sparsewire.bench.names import backend_name
from sparsewire.bench.options import BenchOptions
from sparsewire.bench.result import CaseResult

AUTO = "auto"
CANDIDATES = ("allgather", "ssar_recursive_double", "ssar_split_allgather", "stream")
"""The algorithms among which "auto" chooses."""

CLOSE = 1.15
"""Up to so many times the best time counts as well chosen."""

_ITERATIONS = 400


@dataclass(frozen=True)
class Grid:
    """What to measure: sizes in bytes, densities, and the seconds that a cell may take."""

    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    cell_s: float

    def job(self, ranks: int, seed: int, timeout: float) -> Job:
        """All cells, float32, with positions of their own on every rank."""
        options = BenchOptions(
            bytes=",".join(map(str, self.sizes)),
            density=",".join(map(str, self.densities)),
            pattern="random",
            input="sparse",
            algorithm=",".join((AUTO, *CANDIDATES)),
            iterations=_ITERATIONS,
            seed=seed,
            timeout=timeout,
        )
        return options.job(ranks, case_s=self.cell_s)


FULL = Grid(
    (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 100_000_000),
    (1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
    cell_s=1.5,
)
QUICK = Grid((1 << 10, 1 << 17, 1 << 22), (1e-3, 0.01, 0.1, 1.0), cell_s=0.5)


@dataclass(frozen=True)
class Cell:
    """One size and density: median seconds of each fixed algorithm and of "auto"."""

    bytes: int
    density: float
    auto_s: float
    chosen: str
    predicted_s: float | None
    seconds: dict[str, float]
    link: Sequence[float] | None = None
    """The link's figures behind the choice."""

    @classmethod
    def of(cls, result: CaseResult) -> Cell:
        """What a case says about the choice."""
        auto = result.backends[backend_name(AUTO)]
        assert auto.chosen is not None
        seconds = {name: result.backends[backend_name(name)].median_s for name in CANDIDATES}
        sized = (result.bytes, result.density)
        return cls(*sized, auto.median_s, auto.chosen, auto.predicted_s, seconds, auto.link)

    @property
    def best(self) -> str:
        return min(self.seconds, key=lambda name: self.seconds[name])

    @property
    def ratio(self) -> float:
        """The time of "auto" over the best."""
        return self.auto_s / self.seconds[self.best]

    @property
    def is_close(self) -> bool:
        return self.ratio <= CLOSE
