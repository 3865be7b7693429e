"""How publishers and readers reach each other: addresses, and the secret that they share."""

from __future__ import annotations

import os

from sparsewire.errors import InputError
from sparsewire.options import Address, check_secret, parse_address


def address_of(given: str | Address) -> Address:
    """The address that is given, "host:port"; raises InputError for what is none."""
    try:
        return parse_address(given) if isinstance(given, str) else given
    except ValueError as error:
        raise InputError(str(error)) from None


def secret_of(given: str | bytes | None) -> bytes:
    """The secret as bytes, by default that of SPARSEWIRE_SECRET; raises InputError if too short.

    Without one anybody who reaches the publisher may read.
    """
    text = os.environ.get("SPARSEWIRE_SECRET", "") if given is None else given
    try:
        return check_secret(text.encode() if isinstance(text, str) else text)
    except ValueError as error:
        raise InputError(str(error)) from None
