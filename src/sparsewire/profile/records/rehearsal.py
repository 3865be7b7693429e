"""Times what this machine takes for memory, and for the rows of tables, once steps are recorded.

All ranks do it at the same time, as they train: what they share, processors and memory, they share
here, too. It works on memory of its own, and draws from a generator of its own.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Sequence

import torch

from sparsewire.profile.records.clock import Clock
from sparsewire.profile.records.recorded import Cost, Memory, Rehearsal

_logger = logging.getLogger(__name__)

SPARSE_OPTIMIZERS = {"SGD": "SGD", "Adagrad": "Adagrad", "SparseAdam": "SparseAdam"}
"""Optimizers that take sparse gradients as they are."""

INSTEAD = "SparseAdam"
"""The optimizer of a table if the model's takes no sparse gradients."""

MOST_TABLES = 4
"""Rehearsed, the largest ones; rows of the others are taken to cost as much."""

_TIMES = 3
_BYTES = 32 << 20
_SMALLER = 8
_LEAST_ROWS = 64


class Table:
    """A table as it trains: `rows` are how many of its rows have gradients, on all ranks."""

    def __init__(self, number: int, weight: torch.Tensor, rows: int, optimizer: str) -> None:
        self.number, self.rows, self.optimizer = number, rows, optimizer
        self.width = weight[0].numel()
        self._kept, self._weight = weight.shape[0], weight
        self._draws = torch.Generator(weight.device).manual_seed(0)

    def gradient(self, rows: int, coalesced: bool) -> torch.Tensor:
        """A gradient of random rows of the scratch table; coalesced rows are all different."""
        count, device = self.scratch_rows, self._weight.device
        if coalesced:
            drawn = torch.randperm(count, generator=self._draws, device=device)[:rows].sort().values
        else:
            drawn = torch.randint(count, (rows,), generator=self._draws, device=device)
        values = torch.ones(rows, self.width, dtype=self._weight.dtype, device=device)
        return torch.sparse_coo_tensor(
            drawn[None], values, (count, self.width), is_coalesced=coalesced, check_invariants=False
        )

    @property
    def scratch_rows(self) -> int:
        """More than have gradients, so that these are not in the cache for that reason."""
        return max(1, min(self._kept, max(4 * self.most_rows, 2 * _LEAST_ROWS)))

    @property
    def most_rows(self) -> int:
        """The most rows that are timed; the time of more rows is extrapolated."""
        fit = _BYTES // max(1, self.width * self._weight.element_size())
        return max(1, min(self.rows, fit, self._kept))

    def scratch(self) -> torch.nn.Parameter:
        shape = self.scratch_rows, self.width
        weight = torch.zeros(shape, dtype=self._weight.dtype, device=self._weight.device)
        return torch.nn.Parameter(weight)


def memory(device: torch.device, clock: Clock) -> Memory:
    """Seconds a byte of new memory and of copies."""
    source = torch.ones(_BYTES // 4, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    copies = [_timed(lambda: target.copy_(source), clock) for _ in range(_TIMES)]
    fills, frees = [], []
    for _ in range(_TIMES):
        begin = clock.now()
        fresh = [torch.zeros_like(source)]
        filled = clock.now()
        fresh.clear()
        frees.append(clock.seconds(filled, clock.now()))
        fills.append(clock.seconds(begin, filled))
    return Memory(*(statistics.median(each) / _BYTES for each in (copies, fills, frees)))


def rehearsals(tables: Sequence[Table], clock: Clock) -> list[Rehearsal]:
    """Rehearsals of the largest tables; a table that cannot be rehearsed is left out."""
    largest = sorted(tables, key=lambda table: -table.rows * table.width)[:MOST_TABLES]
    found = []
    for table in largest:
        try:
            found.append(_rehearsal(table, clock))
        except (RuntimeError, TypeError, ValueError) as error:
            _logger.info("a table's rows are not timed: %s", error)
    return found


def _rehearsal(table: Table, clock: Clock) -> Rehearsal:
    optimizer = SPARSE_OPTIMIZERS.get(table.optimizer, INSTEAD)
    make = getattr(torch.optim, optimizer)
    weight = table.scratch()
    stepper = make([weight], lr=1e-3)
    # The step runs without the hooks that a program has for all its optimizers.
    step = getattr(make.step, "__wrapped__", make.step)

    def coalesce(rows: int) -> Callable[[], object]:
        gradient = table.gradient(rows, coalesced=False)
        return lambda: gradient.coalesce()

    def update(rows: int) -> Callable[[], object]:
        weight.grad = table.gradient(rows, coalesced=True)
        return lambda: step(stepper)

    update(table.most_rows)()  # It makes its state.
    return Rehearsal(
        table.number,
        optimizer,
        coalesce=_cost(coalesce, table.most_rows, clock),
        update=_cost(update, table.most_rows, clock),
    )


def _cost(prepare: Callable[[int], Callable[[], object]], rows: int, clock: Clock) -> Cost:
    """The cost from two sizes; the smaller one gives the constant part."""
    few = max(1, min(rows, max(rows // _SMALLER, _LEAST_ROWS)))
    some_s, all_s = (
        statistics.median(_timed(prepare(each), clock) for _ in range(_TIMES))
        for each in (few, rows)
    )
    if rows == few:
        return Cost(some_s, 0.0)
    row_s = max(all_s - some_s, 0.0) / (rows - few)
    return Cost(max(some_s - few * row_s, 0.0), row_s)


def _timed(work: Callable[[], object], clock: Clock) -> float:
    clock.settle()
    begin = clock.now()
    work()
    return clock.seconds(begin, clock.now())
