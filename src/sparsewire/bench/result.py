"""What was measured, per case and backend, with bandwidths as nccl-tests defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sparsewire.bench.job import Case, Sample
from sparsewire.experiment.cluster import Cluster
from sparsewire.measure.wire_limit import DENSE, Share, ring_bytes, sparse_bytes

_REFERENCES = ("gloo", "gloo-sparse")


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
    """Mean over ranks, with headers and acknowledgements; None where interfaces are shared."""
    limit_bytes_per_host: float
    """Payload that the ideal algorithm moves over a host's link, in its busiest direction."""
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
    """That was asked for, of sparse input; `chosen` is the one that ran."""
    chosen: str | None = None
    predicted_s: float | None = None
    """By the engine's cost model and the link's figures, which were measured at the start."""
    link: Sequence[float] | None = None
    """Those figures: seconds of a message, of a byte, and of an element."""

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
    """What came of one case: of each backend a sample per rank; CPU time of all aggregators."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    share: Share = DENSE
    aggregator_cpu_s: float = 0.0


def summarise(case: Case, outcome: Outcome, cluster: Cluster, item_bytes: int) -> CaseResult:
    """Join what all ranks measured in one case."""
    samples, share, payload = outcome.samples, outcome.share, case.elements * item_bytes
    references = {
        name: float(np.median(_slowest(samples[name]))) for name in _REFERENCES if name in samples
    }
    ring = ring_bytes(payload, cluster.ranks)
    sparse = sparse_bytes(payload, cluster.ranks, cluster.aggregators, share)
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
