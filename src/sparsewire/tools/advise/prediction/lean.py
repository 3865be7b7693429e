"""Recorded steps as they would be with `sparse=True`: without what passes over whole tables took.

A backward pass fills a table's gradient with zeros and copies it into a bucket, and behind it the
optimizer goes through all of it. That was timed in every step, so it can be left out of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparsewire.profile.records.recorded import Bucket, RankProfile, Recorded, Span, Step
from sparsewire.tools.advise.prediction import costs
from sparsewire.tools.advise.prediction.parameters import Seen

_ITEM_BYTES = {"float64": 8, "float16": 2, "bfloat16": 2}
_GUESSED_BYTE_S = costs.FILL_BYTE_S + costs.MOVE_BYTE_S


def leaned(recorded: Recorded, tables: Sequence[Seen]) -> Recorded:
    """The recording with other times of its steps: tables have sparse gradients."""
    ranks = []
    for rank in recorded.ranks:
        lean = _Lean(rank, tables)
        ranks.append(replace(rank, steps=[lean.step(step) for step in rank.steps if step.buckets]))
    return Recorded(ranks)


class _Lean:
    """The lean times of one rank."""

    def __init__(self, rank: RankProfile, tables: Sequence[Seen]) -> None:
        self._rank, self._tables = rank, {table.number: table for table in tables}
        sizes = [math.prod(parameter.shape) for parameter in rank.parameters]
        stepped = {number for each in rank.optimizers for number in each.parameters}
        dense = [n for n in stepped or range(len(sizes)) if not rank.parameters[n].sparse]
        whole = sum(sizes[number] for number in dense)
        self._bytes = {
            number: table.size * _ITEM_BYTES.get(rank.parameters[number].dtype, 4)
            for number, table in self._tables.items()
        }
        self._share = sum(sizes[n] for n in dense if n in self._tables) / whole if whole else 0.0

    def step(self, step: Step) -> Step:
        spans = [*self._spans(step)]
        # Threads may note the end of a transfer late; the optimizer had its sum by then.
        latest = math.inf if step.optimizer_begin_s is None else step.optimizer_begin_s

        def moved(moment_s: float) -> float:
            cut = (max(0.0, min(moment_s, span.end_s) - span.begin_s) for span in spans)
            return max(0.0, moment_s - sum(cut))

        def earlier(bucket: Bucket) -> Bucket:
            return replace(
                bucket,
                ready_s=moved(bucket.ready_s),
                communication_begin_s=moved(bucket.communication_begin_s),
                communication_end_s=moved(min(bucket.communication_end_s, latest)),
            )

        sent = min(latest, max(bucket.communication_end_s for bucket in step.buckets))
        behind = max(0.0, step.duration_s - sent - self._saved_behind(step, sent))
        buckets = [earlier(bucket) for bucket in step.buckets]
        return replace(step, duration_s=moved(sent) + behind, buckets=buckets)

    def _spans(self, step: Step) -> Iterator[Span]:
        """Spans of tables as recorded, or guessed if they were not."""
        known = {span.parameter for span in step.tables}
        yield from (span for span in step.tables if span.parameter in self._tables)
        memory, free = self._rank.memory, 0.0
        byte_s = memory.fill_byte_s + memory.copy_byte_s if memory else _GUESSED_BYTE_S
        for bucket in step.buckets:
            missing = [n for n in bucket.parameters if n in self._tables and n not in known]
            size = sum(self._bytes[number] for number in missing)
            if size:
                yield Span(missing[0], max(free, bucket.ready_s - size * byte_s), bucket.ready_s)
            free = max(free, bucket.ready_s)

    def _saved_behind(self, step: Step, sent: float) -> float:
        """Seconds saved behind the last transfer: copies, the optimizer, and freeing gradients."""
        if step.optimizer_s is None or step.optimizer_begin_s is None:
            return 0.0
        copied = max(0.0, step.optimizer_begin_s - sent)
        memory = self._rank.memory
        freed = (
            memory.free_byte_s * sum(self._bytes.values())
            if memory and not self._rank.views
            else 0.0
        )
        return self._share * (copied + step.optimizer_s) + freed
