"""Processors that recorded ranks shared: with each other, and with gloo's own work."""

from __future__ import annotations

from collections import Counter

from sparsewire.profile.records.recorded import Recorded, Step
from sparsewire.tools.advise.prediction import costs

_MOST = 0.8


def recorded_crowd(recorded: Recorded) -> float | None:
    """How many ranks there were for a processor, 1 at least; None where it was not recorded."""
    shares = _shares(recorded)
    return None if shares is None else max(1.0, shares)


def _shares(recorded: Recorded) -> float | None:
    """Ranks for each processor of the fullest machine."""
    cores = {rank.machine: rank.cores for rank in recorded.ranks}
    if None in cores or None in cores.values():
        return None
    ranks = Counter(rank.machine for rank in recorded.ranks)
    return max(count / (cores[machine] or 1) for machine, count in ranks.items())


class Stolen:
    """Time that gloo took from backward passes: it sends while later gradients are computed.

    If ranks have a processor or less each, computing waits for gloo.
    """

    def __init__(self, recorded: Recorded) -> None:
        shares, n = _shares(recorded) or 0.0, len(recorded.ranks)
        is_shared = recorded.ranks[0].backend == "gloo" and shares >= 1
        self._byte_s = 2 * (n - 1) / n * costs.GLOO_BYTE_S * shares if is_shared else 0.0
        self._sparse = {
            number for number, each in enumerate(recorded.ranks[0].parameters) if each.sparse
        }

    def before(self, step: Step, moment_s: float) -> float:
        """Seconds of the step's backward pass until then that were gloo's."""
        taken, free = 0.0, 0.0
        for bucket in step.buckets:
            begin = max(bucket.ready_s, free)
            free = max(begin, bucket.communication_end_s)
            meanwhile = min(moment_s, free) - begin
            if meanwhile > 0 and not self._sparse.intersection(bucket.parameters):
                share = bucket.bytes * self._byte_s / (free - begin)
                taken += meanwhile * min(share, _MOST)
        return taken
