"""Random numbers that belong to one rank and one purpose, and can be saved and restored."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

_WORDS = 2


class Draws:
    """A generator of its own for each (seed, rank, name); global generators are never touched.

    Draws that differ in any of the three are unrelated. The bits come from Philox (Salmon et al.,
    Parallel random numbers: as easy as 1, 2, 3, SC 2011).
    """

    def __init__(self, seed: int, rank: int = 0, name: str = "") -> None:
        digest = hashlib.blake2b(f"{seed}/{rank}/{name}".encode(), digest_size=8 * _WORDS).digest()
        self.generator = np.random.Generator(np.random.Philox(key=np.frombuffer(digest, "<u8")))

    def key(self) -> int:
        """A fresh number of 64 bits: for kernels that draw by counter, or a seed to send."""
        return int(self.generator.bit_generator.random_raw())

    def place(self) -> Any:
        """How far it has come, for `return_to`."""
        return self.generator.bit_generator.state

    def return_to(self, place: Any) -> None:
        """Draw again what was drawn from there on."""
        self.generator.bit_generator.state = place

    def state(self) -> dict[str, Any]:
        """All there is to go on from, of plain types that JSON keeps."""
        plain: dict[str, Any] = _plain(self.generator.bit_generator.state)
        return plain

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Draws:
        """Go on where `state()` was taken; raises ValueError for what is no such state."""
        draws = cls(0)
        try:
            inner = {name: np.array(words, np.uint64) for name, words in state["state"].items()}
            restored = {**state, "state": inner, "buffer": np.array(state["buffer"], np.uint64)}
            draws.generator.bit_generator.state = restored
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"this is no state of draws: {error!r}") from None
        return draws


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
