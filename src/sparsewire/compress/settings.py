"""The settings in an operator's name, such as the 0.05 of "rand-k:0.05", read and checked."""

from __future__ import annotations

import math

from sparsewire.errors import CompressError


class Settings:
    """What follows the colons of a name, taken in order; errors quote `usage`."""

    def __init__(self, texts: list[str], usage: str) -> None:
        self._texts = texts
        self._usage = usage
        self._taken = 0

    def integer(self, what: str, default: int | None = None) -> int:
        text = str(self._next(what, default))
        if not text.isdecimal():
            raise self.error(f"{what} must be a whole number, not {text!r}")
        return int(text)

    def optional_integer(self, what: str) -> int | None:
        return self.integer(what) if self._taken < len(self._texts) else None

    def number(self, what: str, default: float | None = None) -> float:
        """A number; "inf" is one."""
        text = self._next(what, default)
        try:
            number = float(text)
        except ValueError:
            raise self.error(f"{what} must be a number, not {text!r}") from None
        if math.isnan(number):
            raise self.error(f"{what} must be a number, not {text!r}")
        return number

    def text(self, what: str) -> str:
        """A setting as it was written."""
        return str(self._next(what, None))

    def share(self, what: str, total: int) -> int:
        """So many of `total`: a whole number, or a fraction such as 0.05 of it, at least 1."""
        return self.share_of(self.text(what), what, total)

    def share_of(self, text: str, what: str, total: int) -> int:
        """The same of a setting that was taken already."""
        if text.isdecimal():
            return int(text)
        fraction = Settings([text], self._usage).number(what)
        if not 0 < fraction <= 1:
            raise self.error(f"{what} must be a whole number or a fraction in (0, 1], not {text}")
        return max(1, round(fraction * total))

    def end(self) -> None:
        if self._taken < len(self._texts):
            raise self.error(f"{self._texts[self._taken]!r} is one setting too many")

    def error(self, message: str) -> CompressError:
        return CompressError(f"{message}; write {self._usage}")

    def _next(self, what: str, default: int | float | None) -> str | int | float:
        if self._taken < len(self._texts):
            self._taken += 1
            return self._texts[self._taken - 1]
        if default is None:
            raise self.error(f"{what} is missing")
        return default
