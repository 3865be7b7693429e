"""How publishers and readers reach each other: addresses, the secret, what readers tell."""

from __future__ import annotations

import os
import socket

from sparsewire.errors import InputError
from sparsewire.options import Address, check_secret, parse_address
from sparsewire.weights.sync.channel import Document
from sparsewire.weights.sync.told import MBITS_MAX, is_text


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


def described(name: str | None, site: str = "", mbits: float = 0) -> Document:
    """What the publisher hears of a reader, whose host's name is its own by default.

    Raises InputError for what a publisher would refuse.
    """
    own = name or socket.gethostname()
    for key, text in (("name", own), ("site", site)):
        if not is_text(text):
            raise InputError(f"{key}={text!r:.40} is no line of at most 200 characters")
    if not isinstance(mbits, (int, float)) or not 0 <= mbits < MBITS_MAX:
        raise InputError(f"mbits={mbits!r:.40} is no speed in Mbit/s")
    return {"name": own, "site": site, "mbits": mbits}
