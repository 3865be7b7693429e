"""A model of the network between the workers and the server: what a round takes on it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparsewire.lab import parse_speed
from sparsewire.optimize.compare.words import seconds, speed

VALUE_BITS = 64
"""Values travel as float64, so that rounding does not end the convergence."""

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Link:
    """What each worker has to the server, in both directions at the same time.

    The server keeps up with all workers, as it does where every worker is the server of a part.
    """

    up_bits_s: float
    """Bits per second from a worker to the server."""
    down_bits_s: float
    latency_s: float
    """Of one message in one direction."""

    def seconds(self, rounds: float, bits: float, dimension: int) -> float:
        """What `rounds` rounds take in which a worker sends `bits` in all.

        After each, the server sends every worker the mean: `dimension` values, for they are dense
        whatever the workers sent. Computation is not in it.
        """
        down_bits = rounds * VALUE_BITS * dimension
        return 2 * self.latency_s * rounds + bits / self.up_bits_s + down_bits / self.down_bits_s

    def __str__(self) -> str:
        up, down = speed(self.up_bits_s), speed(self.down_bits_s)
        both = f"{up} per worker" if up == down else f"{up} per worker to the server, {down} back"
        return f"{both}, {seconds(self.latency_s)} latency"


def read_link(link: str, downlink: str | None, latency: str) -> Link:
    """Read speeds such as "1gbit" and a latency such as "100us"; raises ValueError for others."""
    up = parse_speed(link)
    down = up if downlink is None else parse_speed(downlink)
    return Link(up, down, parse_latency(latency))


def parse_latency(text: str) -> float:
    """The seconds that "100us", "0.5ms" or "1s" says; raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip().lower())
    if match is None:
        raise ValueError(f"cannot read latency {text!r}: write it like 100us or 5ms")
    return float(match[1]) * _UNITS[match[2]]
