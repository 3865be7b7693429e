"""What a caller asked for, which ranks compare: the engine may carry it out by other means."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire._core import COLLECTIVES, FORMS


class Purpose(NamedTuple):
    """Codes, as the engine takes them: of `_core.COLLECTIVES`, `_core.DTYPES` and `_core.FORMS`."""

    collective: int = COLLECTIVES["all_reduce"]
    root: int = 0
    dtype: int = 0
    elements: int = 0
    """Of the caller's array, where others travel in its place."""
    form: int = FORMS["auto"]
    """Of the result that the caller wants."""
    site: int = 0
    """Where the call was made (`call_site`); 0: not told."""
