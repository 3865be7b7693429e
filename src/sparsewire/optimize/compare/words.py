"""Speeds, sizes and times in words."""

from __future__ import annotations


def speed(bits_s: float) -> str:
    """Such as "100 Mbit/s"."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits_s >= unit:
            return f"{bits_s / unit:g} {name}"
    return f"{bits_s / 1e3:g} kbit/s"


def size(bits: float) -> str:
    """A number of bits in bytes, such as "1.23 MB"."""
    for unit, name in ((8e9, "GB"), (8e6, "MB"), (8e3, "kB")):
        if bits >= unit:
            return f"{bits / unit:.3g} {name}"
    return f"{bits / 8:.0f} B"


def seconds(duration: float) -> str:
    """Such as "1.23 ms"."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if duration >= unit:
            return f"{duration / unit:,.3g} {name}" if duration < 1e3 else f"{duration:,.0f} s"
    return f"{duration * 1e6:.3g} us"
