"""What rows of a table are timed at, and that the training's optimizers and draws stay alone."""

from __future__ import annotations

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from sparsewire.profile.records.clock import HostClock
from sparsewire.profile.records.rehearsal import MOST_TABLES, Table, memory, rehearsals


def table(number: int = 0, rows: int = 300, optimizer: str = "Adam") -> Table:
    return Table(number, torch.zeros(5000, 16), rows, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "rehearsed"),
    [("Adam", "SparseAdam"), ("AdamW", "SparseAdam"), ("SGD", "SGD"), ("Adagrad", "Adagrad")],
)
def test_rows_are_timed_with_an_optimizer_that_takes_them(optimizer: str, rehearsed: str) -> None:
    (found,) = rehearsals([table(optimizer=optimizer)], HostClock())
    assert (found.parameter, found.optimizer) == (0, rehearsed)
    assert found.update.of(300) > 0
    assert found.coalesce.of(300) > 0


@pytest.mark.parametrize("rows", [1, 4999, 5000])
def test_any_number_of_rows_is_timed(rows: int) -> None:
    (found,) = rehearsals([table(rows=rows)], HostClock())
    assert found.update.of(rows) > 0


def test_the_largest_tables_are_timed() -> None:
    tables = [table(number, rows=100 + number) for number in range(MOST_TABLES + 2)]
    found = {each.parameter for each in rehearsals(tables, HostClock())}
    assert found == set(range(2, MOST_TABLES + 2))


def test_draws_and_hooks_of_the_program_see_nothing() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    stepped: list[object] = []
    handle = register_optimizer_step_pre_hook(lambda *told: stepped.append(told))
    try:
        assert rehearsals([table()], HostClock())
    finally:
        handle.remove()
    assert stepped == []
    assert torch.equal(torch.rand(3), expected)


def test_memory_takes_time() -> None:
    found = memory(torch.device("cpu"), HostClock())
    assert found.copy_byte_s > 0
    assert found.fill_byte_s > 0
    assert found.free_byte_s >= 0
