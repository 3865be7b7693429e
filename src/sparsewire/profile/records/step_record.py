"""One step while it is recorded: the taps' notes of its buckets become a `Step`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from sparsewire.profile.records.clock import Clock, Moment
from sparsewire.profile.records.marks import Counted, Density, Marks
from sparsewire.profile.records.recorded import Bucket, ParameterDensity, Span, Step


class Vector(NamedTuple):
    """A gradient that is only made where somebody looks at it."""

    elements: int
    dtype: torch.dtype
    gradient: Callable[[], torch.Tensor]

    @classmethod
    def of(cls, gradient: torch.Tensor) -> Vector:
        return cls(gradient.numel(), gradient.dtype, lambda: gradient)


class RowShares(NamedTuple):
    """Shares of a table's rows that are not zero, on this rank and in the union."""

    own: float
    union: float | None = None


class Layout(NamedTuple):
    """How the model's parameters lie in memory: `sizes` of all, and row `widths` of tables."""

    sizes: Sequence[int]
    widths: Mapping[int, int]

    def parts(self, marks: Marks, parameters: Sequence[int]) -> Iterator[tuple[int, Marks]]:
        """The marks of each parameter of a bucket."""
        begin = 0
        for parameter in parameters:
            yield parameter, marks.part(begin, begin + self.sizes[parameter])
            begin += self.sizes[parameter]

    def tables(self, marks: Marks, parameters: Sequence[int]) -> Iterator[tuple[int, Marks]]:
        """Marks of the bucket's tables alone."""
        found = self.parts(marks, parameters) if self.widths.keys() & set(parameters) else ()
        return (each for each in found if each[0] in self.widths)


@dataclass
class Noted:
    """One bucket. `result` is the tensor that will hold its sum, if that is known."""

    index: int
    parameters: Sequence[int]
    elements: int
    bytes: int
    dtype: str
    ready: Moment
    begin: Moment
    end: Moment | None = None
    result: torch.Tensor | None = None
    future: Any = None
    """The future of a sparse sum, which is a new tensor: its value once DDP has waited for it."""
    marks: Marks | None = None
    counted: list[Counted] = field(default_factory=list)
    """Counts of the bucket, and of each parameter in it, until they are read."""
    densities: list[Density] = field(default_factory=list)
    rows: dict[int, RowShares] = field(default_factory=dict)
    """Shares of each table in the bucket, by the parameter."""
    union_elements: float | None = None
    union_blocks: float | None = None

    def unite(self, counts: torch.Tensor, layout: Layout) -> None:
        """Note the union's densities: of ranks that have something in each block, and the sum."""
        self.union_blocks = counts.gt(0).float().mean().item()
        summed = self.summed()
        if summed is not None:
            marks = Marks.of(summed)
            non_zeros = marks.counts().sum().item()
            self.union_elements = non_zeros / max(1, self.elements)
            for parameter, part in layout.tables(marks, self.parameters):
                shares = self.rows[parameter]
                self.rows[parameter] = shares._replace(
                    union=part.row_share(layout.widths[parameter])
                )

    def summed(self) -> torch.Tensor | None:
        """The sum over all ranks, None where that is not known."""
        if self.result is not None or self.future is None:
            return self.result
        value: Any = self.future.value()
        summed: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
        return summed


class StepRecord:
    """Densities are looked at where it is sampled."""

    def __init__(self, number: int, clock: Clock, layout: Layout, *, sampled: bool) -> None:
        self.number, self.sampled = number, sampled
        self.buckets: list[Noted] = []
        self._clock, self._layout = clock, layout
        self.begin = clock.now()
        self.end: Moment | None = None
        self.tables: list[tuple[int, Moment, Moment]] = []
        """Parts of backward passes, by the parameter that they made the gradient of."""
        self.optimizers: list[tuple[Moment, Moment]] = []
        self._looking: list[tuple[Moment, Moment]] = []

    def ready(self, vector: Vector, parameters: Sequence[int], ready: Moment) -> Noted:
        """Note that the next bucket is complete, and look at it if this is a sample."""
        dtype = str(vector.dtype).removeprefix("torch.")
        size = vector.elements * vector.dtype.itemsize
        number = len(self.buckets)
        noted = Noted(number, parameters, vector.elements, size, dtype, ready, ready)
        self.buckets.append(noted)
        if self.sampled:
            begin = self._clock.now()
            self._look(noted, vector.gradient())
            noted.begin = self._clock.now()
            self._looking.append((begin, noted.begin))
        return noted

    def _look(self, noted: Noted, gradient: torch.Tensor) -> None:
        marks = noted.marks = Marks.of(gradient)
        noted.counted = [Counted(marks)]
        for parameter, part in self._layout.parts(marks, noted.parameters):
            noted.counted.append(noted.counted[0] if part is marks else Counted(part))
            if parameter in self._layout.widths:
                noted.rows[parameter] = RowShares(part.row_share(self._layout.widths[parameter]))

    def block_masks(self) -> list[torch.Tensor]:
        """Masks of the blocks of each bucket that are not zero on this rank, bool."""
        return [each.counted[0].blocks for each in self.buckets]

    def read(self) -> None:
        """Wait for the device, and keep the densities alone."""
        for each in self.buckets:
            each.densities = [counted.density() for counted in each.counted]
            each.counted, each.marks, each.result, each.future = [], None, None, None

    def unite(self, blocks: Sequence[torch.Tensor]) -> None:
        """Note in how many ranks there is something in each block of each bucket."""
        for noted, counts in zip(self.buckets, blocks, strict=True):
            noted.unite(counts, self._layout)

    def looking_s(self) -> float:
        """Seconds that looking at gradients took; waits for the device."""
        return sum(self._clock.seconds(*each) for each in self._looking)

    def finished(self, next_begin: Moment) -> Step:
        """The record of the step, once the next one has begun; waits for the device."""
        buckets = [self._bucket(each) for each in self.buckets]
        ends = [bucket.communication_end_s for bucket in buckets]
        backward = [] if self.end is None else [self._since_begin(self.end)]
        return Step(
            self.number,
            self._since_begin(next_begin),
            max([*ends, *backward], default=0.0),
            self.sampled,
            buckets,
            [density for each in self.buckets for density in _densities(each)],
            [Span(number, *map(self._since_begin, moments)) for number, *moments in self.tables],
            self._since_begin(self.optimizers[0][0]) if self.optimizers else None,
            sum(self._clock.seconds(*each) for each in self.optimizers) or None,
        )

    def _bucket(self, noted: Noted) -> Bucket:
        begin = self._since_begin(noted.begin)
        elements, blocks = noted.densities[0] if noted.densities else (None, None)
        return Bucket(
            noted.index,
            list(noted.parameters),
            noted.elements,
            noted.bytes,
            noted.dtype,
            self._since_begin(noted.ready),
            begin,
            begin if noted.end is None else self._since_begin(noted.end),
            elements,
            blocks,
            noted.union_blocks,
            noted.union_elements,
        )

    def _since_begin(self, moment: Moment) -> float:
        return max(0.0, self._clock.seconds(self.begin, moment))


def _densities(noted: Noted) -> list[ParameterDensity]:
    of_parameters = zip(noted.parameters, noted.densities[1:], strict=False)
    return [
        ParameterDensity(parameter, *density, *noted.rows.get(parameter, ()))
        for parameter, density in of_parameters
    ]
