"""What a reader tells in a document, field by field: nothing of it is taken unread."""

from __future__ import annotations

from sparsewire.errors import ProtocolError
from sparsewire.options import Address, parse_address
from sparsewire.weights.sync.chain import VERSION_MAX
from sparsewire.weights.sync.channel import Document

_TEXT_MAX = 200
MBITS_MAX = 1e9
_EVERYWHERE = ("", "0.0.0.0", "::")


def text_in(told: Document, key: str) -> str:
    """A short line, empty where it is missing; raises ProtocolError for what is none."""
    value = told.get(key) or ""
    if not is_text(value):
        raise ProtocolError(f"a reader told no text as its {key}")
    return str(value)


def is_text(value: object) -> bool:
    """Whether it is a line that a reader may tell of itself."""
    return isinstance(value, str) and len(value) <= _TEXT_MAX and value.isprintable()


def number_in(told: Document, key: str) -> int | None:
    """The number of a version, None where it is missing; raises ProtocolError for what is none."""
    value = told.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < VERSION_MAX):
        raise ProtocolError(f"a reader told no number as its {key}")
    return value


def fingerprint_in(told: Document, key: str) -> bytes | None:
    """A fingerprint, None where it is missing; raises ProtocolError for what is none."""
    text = text_in(told, key)
    try:
        return bytes.fromhex(text) or None
    except ValueError:
        raise ProtocolError(f"a reader told no fingerprint as its {key}") from None


def mbits_in(told: Document) -> float:
    """The speed of a reader's link in Mbit/s; zero for what is none."""
    mbits = told.get("mbits")
    return float(mbits) if isinstance(mbits, (int, float)) and 0 <= mbits < MBITS_MAX else 0.0


def relay_in(told: Document, caller: str) -> str:
    """The address of a relay as others reach it: one that listens everywhere is where it calls
    from. Raises ProtocolError."""
    relay = text_in(told, "relay")
    if not relay:
        return ""
    try:
        address = parse_address(relay)
        host = parse_address(caller).host if address.host in _EVERYWHERE else address.host
    except ValueError as error:
        raise ProtocolError(f"a relay told no address: {error}") from None
    return str(Address(host, address.port))
