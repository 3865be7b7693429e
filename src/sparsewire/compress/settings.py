"""The settings in an operator's name, such as the 0.05 of "rand-k:0.05", read and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from sparsewire.errors import CompressError


def read(pattern: str, texts: list[str]) -> dict[str, Any]:
    """What constructors take for settings, in their order in a pattern such as ":LEVELS[:NORM]".

    Raises CompressError for settings that are missing, too many, or no numbers.
    """
    settings = re.findall(r"(\[?):([A-Z]+)", pattern)
    if len(texts) > len(settings):
        raise CompressError(f"{texts[len(settings)]!r} is one setting too many")
    for is_optional, what in settings[len(texts) :]:
        if not is_optional:
            raise CompressError(f"{what} is missing")
    given = {}
    for (_, what), text in zip(settings, texts, strict=False):
        parameter, convert = _PARAMETERS[what]
        given[parameter] = convert(what, text)
    return given


def share(what: str, text: str, total: int) -> int:
    """So many of `total`: a whole number, or a fraction such as 0.05 of it, at least 1."""
    if text.isdecimal():
        return int(text)
    fraction = _number(what, text)
    if not 0 < fraction <= 1:
        raise CompressError(f"{what} must be a whole number or a fraction in (0, 1], not {text}")
    return max(1, round(fraction * total))


def _integer(what: str, text: str) -> int:
    if not text.isdecimal():
        raise CompressError(f"{what} must be a whole number, not {text!r}")
    return int(text)


def _number(what: str, text: str) -> float:
    """A number; "inf" is one."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise CompressError(f"{what} must be a number, not {text!r}")
    return number


_PARAMETERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "K": ("k", lambda _, text: text),  # What it is a share of may come behind it.
    "P": ("probability", _number),
    "T": ("threshold", _number),
    "LEVELS": ("levels", _integer),
    "BITS": ("bits", _integer),
    "NORM": ("power", _number),
    "BLOCK": ("block", _integer),
    "SPAN": ("span", _integer),
    "RANK": ("rank", _integer),
    "ROWS": ("rows", _integer),
}
