"""The secret that publishers and readers share."""

from __future__ import annotations

import os

from sparsewire.errors import InputError
from sparsewire.options import check_secret


def secret_of(given: str | bytes | None) -> bytes:
    """The secret as bytes, by default that of SPARSEWIRE_SECRET; raises InputError if too short.

    Without one anybody who reaches the publisher may read.
    """
    text = os.environ.get("SPARSEWIRE_SECRET", "") if given is None else given
    try:
        return check_secret(text.encode() if isinstance(text, str) else text)
    except ValueError as error:
        raise InputError(str(error)) from None
