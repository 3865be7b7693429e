"""Sizes and lists as people write them on a command line: 25e6, 64Ki, 4KiB, 1,0.1; and in words."""

import re

from sparsewire.errors import ExperimentError

_SIZE = re.compile(r"(?P<number>[\d._]+(?:e\+?\d+)?)\s*(?P<prefix>[kMG]|[KMG]i)?(?P<byte>B)?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def split_list(text: str, separator: str = ",") -> list[str]:
    """Cut a list at the separator; raises ExperimentError where an entry is empty."""
    entries = [entry.strip() for entry in text.split(separator)]
    if not all(entries):
        raise ExperimentError(f"{text!r} has an empty entry; write values like a{separator}b")
    return entries


def parse_elements(text: str, item_bytes: int, *, unit: str = "elements") -> int:
    """Number of elements that one size means.

    A trailing B (4KiB) says bytes, else `unit` decides: "elements" or "bytes".
    Raises ExperimentError for anything that is not a positive whole number of elements.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ExperimentError(f"{text!r} is not a size; write for example 25e6, 64Ki or 4KiB")
    size = _number(match["number"], text) * _FACTORS[match["prefix"] or ""]
    elements = size / item_bytes if match["byte"] or unit == "bytes" else size
    if elements < 1 or not elements.is_integer():
        raise ExperimentError(
            f"{text!r} is not a positive whole number of {item_bytes}-byte elements"
        )
    return int(elements)


def size_text(size: int) -> str:
    """A size with its unit: 1 KiB, 100 MB."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size / 1e6:g} MB"


def speed_text(bits_s: float) -> str:
    """A speed in words, such as "100 Mbit/s"."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits_s >= unit:
            return f"{bits_s / unit:g} {name}"
    return f"{bits_s / 1e3:g} kbit/s"


def traffic_text(bits: float) -> str:
    """A number of bits in bytes, such as "1.23 MB"."""
    for unit, name in ((8e9, "GB"), (8e6, "MB"), (8e3, "kB")):
        if bits >= unit:
            return f"{bits / unit:.3g} {name}"
    return f"{bits / 8:.0f} B"


def seconds_text(duration: float) -> str:
    """A duration in words, such as "1.23 ms"."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if duration >= unit:
            return f"{duration / unit:,.3g} {name}" if duration < 1e3 else f"{duration:,.0f} s"
    return f"{duration * 1e6:.3g} us"


def parse_density(text: str) -> float:
    """A density in (0, 1]; raises ExperimentError for everything else."""
    density = _number(text, text)
    if not 0 < density <= 1:
        raise ExperimentError(f"density {text} is out of range; choose it above 0 and at most 1")
    return density


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ExperimentError(f"{whole!r} does not begin with a number") from None
