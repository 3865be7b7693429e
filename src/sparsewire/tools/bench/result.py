"""Measurements by case and backend, with bandwidths as nccl-tests defines them.

People get a table for each pattern and size, 100 columns wide, and a picture.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.table import Table

from sparsewire.tools.bench.job import OTHERS, Case, Sample, in_words
from sparsewire.tools.bench.patterns import in_words as pattern_in_words
from sparsewire.tools.experiment.cluster import Cluster
from sparsewire.tools.experiment.report import Column, new_figure, number, table
from sparsewire.tools.measure.wire_limit import DENSE, Share, ring_bytes, sparse_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Measurement:
    """One backend in one case, per call. A call takes as long as its slowest rank."""

    median_s: float
    p99_s: float
    mean_s: float
    min_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    counted_bytes_sent_per_rank: float | None
    """Mean over ranks, as the backend counts them; None where it does not count."""
    interface_bytes_sent_per_rank: float | None
    """Mean over ranks of what their hosts sent, with headers and acknowledgements; None on
    loopback."""
    limit_bytes_per_host: float
    """Payload that the ideal algorithm moves over a host's link, in its busiest direction; what an
    aggregator's faster link takes counts as what a rank's would take meanwhile."""
    limit_s: float | None
    limit_ratio: float | None
    user_cpu_s: float
    """Sum over ranks."""
    system_cpu_s: float
    aggregator_cpu_s: float
    speedup_over_gloo: float | None
    times_s: list[float]
    speedup_over_gloo_sparse: float | None = None
    algorithm: str | None = None
    """For sparse input: the algorithm that was asked for; `chosen` is the one that ran."""
    chosen: str | None = None
    predicted_s: float | None = None
    """Seconds by the engine's cost model and the link's figures, measured at the start."""
    link: Sequence[float] | None = None
    """The link's figures: seconds of a message, of a byte, and of an element."""

    @property
    def bytes_sent_per_rank(self) -> float | None:
        """The interface's count where there is one, so that backends are measured alike."""
        if self.interface_bytes_sent_per_rank is not None:
            return self.interface_bytes_sent_per_rank
        return self.counted_bytes_sent_per_rank

    @property
    def cpu_s(self) -> float:
        """All CPU time of all ranks and aggregators."""
        return self.user_cpu_s + self.system_cpu_s + self.aggregator_cpu_s


@dataclass(frozen=True)
class CaseResult:
    """One case over all ranks; every result behind it was checked against the reference."""

    pattern: str
    elements: int
    bytes: int
    density: float
    share_mean: float
    share_union: float
    gloo_limit_s: float | None
    backends: dict[str, Measurement]


@dataclass
class Outcome:
    """The outcome of one case: a sample of each backend and rank; CPU time of all aggregators."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    share: Share = DENSE
    aggregator_cpu_s: float = 0.0


def summarise(case: Case, outcome: Outcome, cluster: Cluster, item_bytes: int) -> CaseResult:
    """Join what all ranks measured in one case."""
    samples, share, payload = outcome.samples, outcome.share, case.elements * item_bytes
    references = {
        name: float(np.median(_slowest(samples[name]))) for name in OTHERS if name in samples
    }
    ring = ring_bytes(payload, cluster.ranks)
    sparse = sparse_bytes(payload, cluster.hosts, cluster.aggregator_links, share)
    aggregator_s = outcome.aggregator_cpu_s / (case.warmup + case.iterations)
    return CaseResult(
        pattern=case.pattern,
        elements=case.elements,
        bytes=payload,
        density=case.density,
        share_mean=share.mean,
        share_union=share.union,
        gloo_limit_s=cluster.seconds(ring),
        backends={
            name: _measurement(of_ranks, payload, ring, cluster, references, 0.0)
            if name == "gloo"
            else _measurement(of_ranks, payload, sparse, cluster, references, aggregator_s)
            for name, of_ranks in samples.items()
        },
    )


def _slowest(samples: Sequence[Sample]) -> list[float]:
    """Seconds per call: a collective is over when its last rank is."""
    return [max(times) for times in zip(*(sample.seconds for sample in samples), strict=True)]


def _measurement(
    samples: Sequence[Sample],
    payload: int,
    limit_bytes: float,
    cluster: Cluster,
    references: Mapping[str, float],
    aggregator_cpu_s: float,
) -> Measurement:
    """Join what the ranks measured of one backend; `payload` is the size of one rank's buffer.

    `references` has the medians of the backends to compare with, in seconds.
    """
    times = _slowest(samples)
    median, calls, ranks = float(np.median(times)), len(times), cluster.ranks
    limit_s = cluster.seconds(limit_bytes)
    counted = [s.counted_bytes_sent for s in samples if s.counted_bytes_sent is not None]
    on_interface = sum(s.interface_bytes_sent for s in samples) / ranks / calls
    over = {name: reference / median for name, reference in references.items()}
    return Measurement(
        median_s=median,
        p99_s=float(np.percentile(times, 99)),
        mean_s=float(np.mean(times)),
        min_s=min(times),
        algbw_bytes_per_s=payload / median,
        busbw_bytes_per_s=payload / median * 2 * (ranks - 1) / ranks,
        counted_bytes_sent_per_rank=sum(counted) / ranks / calls if counted else None,
        interface_bytes_sent_per_rank=on_interface if cluster.emulated else None,
        limit_bytes_per_host=limit_bytes,
        limit_s=limit_s,
        limit_ratio=None if limit_s is None else median / limit_s,
        user_cpu_s=sum(s.user_cpu_s for s in samples) / calls,
        system_cpu_s=sum(s.system_cpu_s for s in samples) / calls,
        aggregator_cpu_s=aggregator_cpu_s,
        speedup_over_gloo=over.get("gloo"),
        times_s=times,
        speedup_over_gloo_sparse=over.get("gloo-sparse"),
        **samples[0].prediction,
    )


class _Row(NamedTuple):
    """One backend at one density."""

    density: float
    backend: str
    measured: Measurement


def tables(results: Sequence[CaseResult]) -> Iterator[Table]:
    """One table per pattern and size, densities below each other."""
    for (pattern, elements), group in itertools.groupby(results, lambda r: (r.pattern, r.elements)):
        rows = [_Row(r.density, name, m) for r in group for name, m in r.backends.items()]
        is_sparse = any(row.measured.algorithm for row in rows)
        columns = _SPARSE_COLUMNS if is_sparse else _DENSE_COLUMNS
        yield table(columns, rows, f"{pattern}, {elements:,} elements")


def algorithm(backend: str, measured: Measurement) -> str:
    """The algorithm that ran, in brackets where it was chosen; of others the backend."""
    if measured.algorithm is None:
        return backend
    return f"({measured.chosen})" if measured.algorithm == "auto" else measured.algorithm


def _times(speedup: float | None) -> str:
    return number(speedup) + ("" if speedup is None else "x")


_DENSITY = Column[_Row]("density", lambda row: f"{row.density:g}")
_MEDIAN = Column[_Row]("median\nms", lambda row: number(row.measured.median_s, 1e3))
_COSTS = (
    Column[_Row]("sent\nMB", lambda row: number(row.measured.bytes_sent_per_rank, 1e-6)),
    Column[_Row]("limit\nms", lambda row: number(row.measured.limit_s, 1e3)),
    Column[_Row]("times\nlimit", lambda row: number(row.measured.limit_ratio)),
    Column[_Row]("CPU\nms", lambda row: number(row.measured.cpu_s, 1e3)),
    Column[_Row]("against\ngloo", lambda row: _times(row.measured.speedup_over_gloo)),
)
_DENSE_COLUMNS = (
    _DENSITY,
    Column[_Row]("backend", lambda row: row.backend, is_text=True),
    _MEDIAN,
    Column[_Row]("p99\nms", lambda row: number(row.measured.p99_s, 1e3)),
    Column[_Row]("algbw\nMB/s", lambda row: number(row.measured.algbw_bytes_per_s, 1e-6)),
    Column[_Row]("busbw\nMB/s", lambda row: number(row.measured.busbw_bytes_per_s, 1e-6)),
    *_COSTS,
)
_SPARSE_COLUMNS = (
    _DENSITY,
    Column[_Row]("algorithm", lambda row: algorithm(row.backend, row.measured), is_text=True),
    _MEDIAN,
    Column[_Row]("model\nms", lambda row: number(row.measured.predicted_s, 1e3)),
    *_COSTS,
    Column[_Row]("its\nsparse", lambda row: _times(row.measured.speedup_over_gloo_sparse)),
)


def time_by_density(results: Sequence[CaseResult], title: str) -> Figure:
    """Every backend and its wire limit."""
    sizes = sorted({result.elements for result in results})
    figure = new_figure(1.5 + 5 * len(sizes), 4.5)
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, elements in zip(panels, sizes, strict=True):
        _draw(axes, [result for result in results if result.elements == elements])
        axes.set_title(f"{elements:,} elements")
    figure.suptitle(title)
    return figure


def _draw(axes: Axes, results: Sequence[CaseResult]) -> None:
    patterns = list(dict.fromkeys(result.pattern for result in results))
    for pattern in patterns:
        of_pattern = [result for result in results if result.pattern == pattern]
        for backend in of_pattern[0].backends:
            label, is_dense = in_words(backend), backend == "gloo"
            # The places of a dense tensor's zeros make no difference, so one line will do.
            if not is_dense or pattern == patterns[0]:
                if not is_dense and len(patterns) > 1:
                    label = f"{label}, {pattern_in_words(pattern)}"
                _draw_backend(axes, of_pattern, backend, label)
    axes.set(xscale="log", yscale="log", xlabel="density", ylabel="time [ms]")
    if results[0].gloo_limit_s is not None:
        axes.plot([], [], "k:", label="wire limit")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize="small")


def _draw_backend(axes: Axes, results: Sequence[CaseResult], backend: str, label: str) -> None:
    by_density = sorted(results, key=lambda result: result.density)
    densities = [result.density for result in by_density]
    measured = [result.backends[backend] for result in by_density]
    style = "s--" if backend.startswith("gloo") else "o-"
    (line,) = axes.plot(densities, [m.median_s * 1e3 for m in measured], style, label=label)
    limits = [m.limit_s * 1e3 for m in measured if m.limit_s is not None]
    axes.plot(densities[: len(limits)], limits, ":", color=line.get_color())
