"""The methods that can be compared, as a table on the terminal: what each takes."""

from __future__ import annotations

from rich.table import Table

from sparsewire.experiment.report import Column, table
from sparsewire.optimize.compare.method_options import method_options
from sparsewire.optimize.compare.registry import METHODS, Entry


def methods() -> Table:
    """Every method with its operators and options."""
    return table(_COLUMNS, METHODS.items())


_Row = tuple[str, Entry]
_COLUMNS = (
    Column[_Row]("method", lambda row: row[0], is_text=True),
    Column[_Row]("what is sent", lambda row: row[1].help, is_text=True),
    Column[_Row]("operators", lambda row: row[1].takes.value, is_text=True),
    Column[_Row]("options", lambda row: ", ".join(method_options(row[1].kind)), is_text=True),
)
