"""The call that a caller made, which ranks compare; the engine may carry out another one for it."""

from __future__ import annotations

from typing import NamedTuple

from sparsewire._core import COLLECTIVES, FORMS


class Purpose(NamedTuple):
    """The call, in codes of the engine: `_core.COLLECTIVES`, `_core.DTYPES` and `_core.FORMS`."""

    collective: int = COLLECTIVES["all_reduce"]
    root: int = 0
    dtype: int = 0
    elements: int = 0
    """Elements of the caller's array, if other elements are sent in its place; else 0."""
    form: int = FORMS["auto"]
    """The form of the result that the caller wants."""
    site: int = 0
    """The number of the call's site (`call_site`); 0: unknown."""
