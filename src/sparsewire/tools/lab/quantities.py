"""Reads what people write of links: their speeds, and what they lose."""

import re

_UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SLOWEST, _FASTEST = 10**6, 34 * 10**9


def parse_link(text: str) -> int:
    """Return the bits per second that `text` says, such as "100mbit", "1gbit" or "2.5gbit".

    Raises ValueError for anything else, and for speeds that the shaper cannot express
    (below 1 Mbit/s or above 34 Gbit/s).
    """
    bits = parse_speed(text)
    if not _SLOWEST <= bits <= _FASTEST:
        raise ValueError(f"link speed {text!r} is out of range: use 1mbit to 34gbit")
    return bits


UNLIMITED = "none"


def limit_of(link: str | None) -> int | None:
    """The bits per second of a link; None for no limit, which "none" says, too."""
    return None if link in (None, UNLIMITED) else parse_link(link)


def parse_speed(text: str) -> int:
    """Like `parse_link`, for links that are not shaped: any speed above 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]bit)", text.strip().lower())
    bits = 0 if match is None else round(float(match[1]) * _UNITS[match[2]])
    if not bits:
        raise ValueError(f"cannot read link speed {text!r}: write it like 100mbit, 1gbit or 10gbit")
    return bits


def parse_loss(text: str) -> float:
    """Return the share that `text` says, such as "1%" or "0.01"; below 1. Raises ValueError."""
    match = re.fullmatch(r"(\d*\.?\d+)\s*(%?)", text.strip())
    share = 1.0 if match is None else float(match[1]) * (0.01 if match[2] else 1)
    if share >= 1:
        raise ValueError(f"cannot read loss {text!r}: write it like 1% or 0.01, below 100%")
    return share
