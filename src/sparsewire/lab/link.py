"""Link speeds of the lab: reads them as users write them, and shapes an interface to them."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyroute2 import IPRoute

# A burst passes unshaped after every pause, so it is as small as it can be: a packet that TCP has
# not yet cut into segments is up to 64 KiB long, and has to fit. With 256 KiB, a short collective
# at 100 Mbit/s would beat the wire.
BURST_BYTES = 80 * 1024

# The buffer of a port of a common switch. Eight senders to one receiver lose nothing in it.
QUEUE_BYTES = 4 * 1024 * 1024

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


def parse_speed(text: str) -> int:
    """Like `parse_link`, for links that are not shaped: any speed above 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]bit)", text.strip().lower())
    bits = 0 if match is None else round(float(match[1]) * _UNITS[match[2]])
    if not bits:
        raise ValueError(f"cannot read link speed {text!r}: write it like 100mbit, 1gbit or 10gbit")
    return bits


def shape(route: "IPRoute", index: int, bits_per_second: int | None) -> None:
    """Limit what leaves through interface `index`, with a finite queue that drops the overflow.

    None is no limit.
    """
    if bits_per_second is not None:
        rate = bits_per_second // 8
        route.tc("add", "tbf", index=index, rate=rate, burst=BURST_BYTES, limit=QUEUE_BYTES)
