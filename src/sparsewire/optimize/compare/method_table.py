"""The methods that can be compared, as a table on the terminal: what each takes."""

from __future__ import annotations

from rich.box import SIMPLE
from rich.table import Table

from sparsewire.optimize.compare.method_options import method_options
from sparsewire.optimize.compare.registry import METHODS


def methods() -> Table:
    """Every method with its operators and options."""
    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("method", "what is sent", "operators", "options"):
        table.add_column(name)
    for name, known in METHODS.items():
        table.add_row(name, known.help, known.takes.value, ", ".join(method_options(known.kind)))
    return table
