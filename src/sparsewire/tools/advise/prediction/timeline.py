"""The recorded backward passes as they are replayed: when buckets are ready, and what is in them.

Times count from the moment at which the ranks were last together: the end of the step before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from sparsewire._core import DENSE_BLOCKS
from sparsewire.errors import InputError
from sparsewire.profile.records.recorded import Bucket, Recorded, Step
from sparsewire.tools.advise.prediction.density import Overlap
from sparsewire.tools.advise.prediction.gradient import Gradient
from sparsewire.tools.advise.prediction.parameters import density_of, mean, seen_parameters
from sparsewire.tools.advise.prediction.rows import row_costs
from sparsewire.tools.advise.prediction.shared import Stolen

_WARM_STEPS = 3
"""With so many steps without samples, the slower steps with samples are left out."""


@dataclass(frozen=True)
class Pass:
    """One step: the time when each bucket was ready on the last rank, and the end of computing."""

    ready: tuple[float, ...]
    end: float

    def changed(self, factor: float, more_s: float) -> Pass:
        """The pass with computing scaled by `factor`, beginning `more_s` later."""
        ready = tuple(more_s + factor * at for at in self.ready)
        return Pass(ready, more_s + factor * self.end)


@dataclass(frozen=True)
class Timeline:
    """Steps alike in their buckets; `gradients` are those of a step's buckets, in their order.

    `members` has the numbers of each bucket's parameters.
    """

    passes: tuple[Pass, ...]
    gradients: tuple[Gradient, ...]
    members: tuple[tuple[int, ...], ...]

    def changed(self, factor: float, more_s: float) -> Timeline:
        """The timeline with all passes changed by `Pass.changed`."""
        return replace(self, passes=tuple(each.changed(factor, more_s) for each in self.passes))


def timeline_of(recorded: Recorded) -> Timeline:
    """Raises InputError where no step, or no density, was recorded."""
    together = list(_steps_together(recorded))
    if not together:
        raise InputError("the profile has no step that all ranks recorded: record more steps")
    # DDP forms its buckets anew in the first steps.
    alike = [steps for steps in together if _layout(steps[0]) == _layout(together[-1][0])]
    plain = [steps for steps in alike if not steps[0].sampled]
    timed = plain if len(plain) >= _WARM_STEPS else alike
    last = alike[-1][0].buckets
    stolen = Stolen(recorded)
    return Timeline(
        passes=tuple(_pass_of(steps, stolen) for steps in timed),
        gradients=tuple(_Seen(recorded, alike, at).gradient() for at in range(len(last))),
        members=tuple(tuple(bucket.parameters) for bucket in last),
    )


def _steps_together(recorded: Recorded) -> Iterator[list[Step]]:
    """The ranks' records of each step with buckets that all ranks have recorded."""
    by_number = [{step.step: step for step in rank.steps} for rank in recorded.ranks]
    for step in recorded.ranks[0].steps:
        found = [of_rank[step.step] for of_rank in by_number if step.step in of_rank]
        if len(found) == len(by_number) and step.buckets:
            yield found


def _layout(step: Step) -> list[tuple[int, list[int]]]:
    return [(bucket.bytes, bucket.parameters) for bucket in step.buckets]


def _pass_of(steps: Sequence[Step], stolen: Stolen) -> Pass:
    """Ranks go on together at the end of a step; a bucket waits for the last of them."""
    of_ranks = [_own_pass(step, stolen) for step in steps]
    ready = zip(*(each.ready for each in of_ranks), strict=True)
    return Pass(tuple(map(max, ready)), max(each.end for each in of_ranks))


def _own_pass(step: Step, stolen: Stolen) -> Pass:
    """One rank's pass. All time behind the last transfer counts as before the next backward pass.

    Time that gloo took from the backward pass is left out.
    """
    sent = max(bucket.communication_end_s for bucket in step.buckets)
    before = max(0.0, step.duration_s - sent)
    # Buckets go in their order.
    moments = accumulate((b.ready_s for b in step.buckets), max)
    ready = tuple(before + at - stolen.before(step, at) for at in moments)
    return Pass(ready, ready[-1])


class _Seen:
    """One bucket as all ranks saw it, in all steps alike."""

    def __init__(self, recorded: Recorded, alike: Sequence[Sequence[Step]], place: int) -> None:
        self._recorded = recorded
        self._alike = alike
        self._buckets = [step.buckets[place] for steps in alike for step in steps]
        self._sizes = {
            number: math.prod(recorded.ranks[0].parameters[number].shape)
            for number in self._buckets[0].parameters
        }

    def gradient(self) -> Gradient:
        """The bucket with the means of its densities."""
        bucket = self._buckets[0]
        blocks, elements = self._mean("block_density"), self._mean("element_density")
        full_blocks, full_elements = self._full("block_density"), self._full("element_density")
        overlap = Overlap.of(
            _known(blocks), self._mean("union_block_density"), self._ranks, full_blocks
        )
        united = self._mean("union_element_density")
        by_element = (
            overlap.of_density(_known(elements), full_elements)
            if united is None
            else Overlap.of(_known(elements), united, self._ranks, full_elements)
        )
        row_bytes = self._row_bytes()
        if row_bytes is not None:
            return self._sparse(row_bytes, overlap)
        return Gradient(
            payload=bucket.bytes,
            item_bytes=max(1, bucket.bytes // bucket.elements),
            blocks=overlap,
            elements=by_element,
            parameters=tuple(self._sizes.values()),
        )

    def _sparse(self, row_bytes: float, blocks: Overlap) -> Gradient:
        """The gradient of a table recorded with `sparse=True`, which has a bucket to itself."""
        bucket = self._buckets[0]
        table = seen_parameters(self._recorded)[bucket.parameters[0]]
        known = table.union_rows is not None
        return Gradient(
            payload=bucket.bytes,
            item_bytes=max(1, bucket.bytes // bucket.elements),
            blocks=blocks,
            elements=table.union_of(self._ranks) if known else blocks.of_density(table.rows, 0.0),
            parameters=tuple(self._sizes.values()),
            row_bytes=row_bytes,
            row_costs=row_costs(self._recorded, table.number, row_bytes, table.optimizer),
        )

    @property
    def _ranks(self) -> int:
        return len(self._recorded.ranks)

    def _mean(self, name: str) -> float | None:
        return mean(getattr(bucket, name) for bucket in self._buckets)

    def _full(self, name: str) -> float:
        """The share of the bucket that belongs to parameters without zeros."""
        total = sum(self._sizes.values())
        full = [
            size
            for number, size in self._sizes.items()
            if (density_of(chain.from_iterable(self._alike), number, name) or 0.0) >= DENSE_BLOCKS
        ]
        return sum(full) / total if total else 0.0

    def _row_bytes(self) -> float | None:
        parameters = [self._recorded.ranks[0].parameters[number] for number in self._sizes]
        if not parameters or not all(parameter.sparse for parameter in parameters):
            return None
        bucket: Bucket = self._buckets[0]
        rows = sum(parameter.shape[0] for parameter in parameters if parameter.shape)
        return bucket.bytes / max(rows, 1)


def _known(density: float | None) -> float:
    if density is None:
        raise InputError("the profile has no densities: record until a step has been sampled")
    return density
